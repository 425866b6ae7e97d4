"""The Python that Spark starts must have this package; the error says which one it is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.spark.datasource.registration import check_python


def test_other_python_without_the_package_is_named_with_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError) as caught:
        check_python("python3")
    assert f"Spark runs data sources with {other}" in str(caught.value)
    assert f"PYSPARK_PYTHON to {sys.executable}" in str(caught.value)


def test_this_python_and_one_of_another_machine_are_accepted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    check_python(sys.executable)
    monkeypatch.setenv("PATH", str(tmp_path))
    check_python("./environment/bin/python")
