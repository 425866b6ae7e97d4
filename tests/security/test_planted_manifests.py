"""Whoever may write to a folder of manifests, reports or settings stops no reader, and reaches no other file."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.analysis.evidence import read_manifests
from servicebus_pair.spark.base.credential_reference import PairReference
from servicebus_pair.spark.base.redaction import Redaction
from servicebus_pair.spark.base.report_files import read_json, write_json
from servicebus_pair.spark.datasource.commit_messages import has_manifest, write_batch_manifest
from tests.security.planting import MANIFEST, NESTED, NO_FILES, close_folder, endless, holding


def test_a_folder_that_another_user_has_closed_is_passed_over_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    (tmp_path / "closed").mkdir()
    MANIFEST.write(tmp_path / "0.json")
    close_folder("closed", monkeypatch)

    assert read_manifests(str(tmp_path), run=None) == MANIFEST
    assert f"folder '{tmp_path / 'closed'}' is passed over: it cannot be read by this user" in caplog.text


READERS: dict[str, Callable[[str], Any]] = {
    "manifest": lambda path: read_manifests(path, run=None),
    "manifests": lambda path: read_manifests(str(Path(path).parent), run=None),
    "report": lambda path: read_json(path, what="report"),
    "settings": lambda path: PairReference.parse(f"file:{path}").resolve(Redaction()),
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
@pytest.mark.parametrize("kind", ["pipe", "device", "socket", "nested", "endless", "infinite"])
def test_what_a_job_reads_is_a_file_of_limited_size(tmp_path: Path, kind: str, read: Callable[[str], Any]):
    infinite = '{"version": 1, "run": "r", "entities": {}, "bytes": 1e999, "seconds": 1}'
    plants = NO_FILES | {"nested": NESTED, "endless": endless, "infinite": holding(infinite)}
    path = tmp_path / "planted.json"
    plants[kind](path)

    if kind == "infinite" and read is READERS["report"]:
        assert read(str(path))["run"] == "r"
    else:
        with pytest.raises(ConfigurationError):
            read(str(path))


WRITERS: dict[str, Callable[[Path], object]] = {
    "manifest": lambda folder: MANIFEST.write(folder / "0.json"),
    "manifest of a batch": lambda folder: write_batch_manifest(
        str(folder.parent), MANIFEST, query_id=folder.name, batch_id=0
    ),
    "report": lambda folder: write_json(folder / "0.json", {}),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_planted_link_has_no_other_file_written(tmp_path: Path, write: Callable[[Path], object]):
    victim, folder = tmp_path / "victim", tmp_path / "query"
    victim.write_text("precious")
    folder.mkdir()
    for name in (f".0.json.{os.getpid()}", "0.json"):
        (folder / name).symlink_to(victim)

    write(folder)

    assert victim.read_text() == "precious"
    assert json.loads((folder / "0.json").read_text()) is not None


def test_the_manifest_of_a_batch_is_not_written_through_a_folder_that_is_a_link(tmp_path: Path):
    (tmp_path / "others").mkdir()
    (tmp_path / "manifests").mkdir()
    (tmp_path / "manifests" / "query").symlink_to(tmp_path / "others")

    with pytest.raises(OSError, match="is a link"):
        WRITERS["manifest of a batch"](tmp_path / "manifests" / "query")
    assert not list((tmp_path / "others").iterdir())


@pytest.mark.parametrize("planted", ["", "{}", "[" * 60_000, json.dumps({**MANIFEST.to_json(), "batch": 7}), *NO_FILES])
def test_what_is_no_manifest_of_a_batch_does_not_stand_for_messages_that_were_sent(tmp_path: Path, planted: str):
    def is_committed() -> bool:
        return has_manifest(str(tmp_path), query_id="query", batch_id=0)

    assert not is_committed()
    write_batch_manifest(str(tmp_path), MANIFEST, query_id="query", batch_id=0)
    assert is_committed()
    (tmp_path / "query" / "0.json").unlink()
    NO_FILES.get(planted, holding(planted))(tmp_path / "query" / "0.json")

    with pytest.raises(ConfigurationError, match="is not the manifest of batch 0"):
        is_committed()


def test_settings_may_be_a_link_as_kubernetes_mounts_secrets(tmp_path: Path):
    (tmp_path / "..data").write_text('{"primary_conn_id": "x"}')
    (tmp_path / "pair.json").symlink_to(tmp_path / "..data")

    with pytest.raises(ConfigurationError, match="primary_conn_id"):
        PairReference.parse(f"file:{tmp_path / 'pair.json'}").resolve(Redaction())
