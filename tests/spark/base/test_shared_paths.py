"""Paths shared by driver and executors are absolute, and never URLs."""

from __future__ import annotations

from pathlib import Path

import pytest

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.base.shared_paths import shared_location, shared_path, spark_path


def test_relative_path_becomes_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    assert shared_path("ledger", what="ledger") == str(tmp_path / "ledger")
    assert shared_path("/elsewhere/c:d", what="ledger") == "/elsewhere/c:d"
    assert spark_path("tables") == f"file://{tmp_path}/tables"


@pytest.mark.parametrize("url", ["abfss://c@a/ledger", "dbfs:/manifest.json", "s3://bucket/ledger"])
def test_url_is_rejected_but_readable_by_spark(url: str):
    with pytest.raises(ConfigurationError, match=f"output is '{url}', which is a URL: it must be a path"):
        shared_path(url, what="output")
    assert spark_path(url) == url


def test_a_location_is_a_folder_or_a_url_without_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    assert shared_location("ledger", what="ledger") == str(tmp_path / "ledger")
    assert shared_location("abfss://c@a/ledger", what="ledger") == "abfss://c@a/ledger"
    for url in ("s3a://user:word@bucket", "abfss://c@a/l?sig=x", "dbfs:/ledger"):
        with pytest.raises(ConfigurationError, match="ledger is"):
            shared_location(url, what="ledger")
