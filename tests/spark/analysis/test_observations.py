"""Spark and the core read a ledger by the same rules (SPEC section 9)."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from servicebus_pair.core import Ledger
from servicebus_pair.core.events import MessageRef, MessagesSyphoned
from servicebus_pair.core.ledger.reader import read_records
from servicebus_pair.core.ledger.segments import writer_name
from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.spark.analysis.compacting import Compaction, compact
from servicebus_pair.spark.analysis.observations import (
    closed_files,
    count_ledger_records,
    read_ledger,
    read_moves,
    read_run,
)
from tests.spark.support.ledger_files import written_ledger

WHOLE = {"v": 1, "kind": "sent", "entity": "q", "route": "primary", "queue": None, "bytes": 9, "at": 1.5, "run": "r"}
BROKEN = [
    '{"v":1,"kind":"sent","id":"torn","ent',
    "",
    "[]",
    *(json.dumps({"id": f"without {name}"} | {k: v for k, v in WHOLE.items() if k != name}) for name in WHOLE),
    *(json.dumps(WHOLE | {"id": f"{name} is wrong", name: "x"}) for name in ("kind", "route", "bytes", "at")),
    *(
        json.dumps(WHOLE | {"id": f"{name} is {value!s:.9}", name: value})
        for name in ("bytes", "at")
        for value in (True, -1, 1e300, 10**300, 10**400, float("nan"), float("inf"), "NaN")
    ),
]


def write(file: Path, *lines: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(lines))


def test_spark_and_core_read_the_same_records(spark: SparkSession, tmp_path: Path):
    for folder in (".", "below", "below/deep", ".hidden", "_temporary"):
        write(tmp_path / folder / "a.jsonl", json.dumps(WHOLE | {"id": f"good in {folder}"}), *BROKEN)
        write(tmp_path / folder / "a.txt", json.dumps(WHOLE | {"id": "another file"}))
    write(tmp_path / "_b.jsonl", json.dumps(WHOLE | {"id": "hidden"}))

    by_core = list(read_records(tmp_path))
    by_spark = read_ledger(spark, str(tmp_path))

    ids = sorted(record.message_id for record in by_core if record is not None)
    assert ids[:3] == ["good in .", "good in below", "good in below/deep"]
    assert set(ids[3:]) == {"without queue", "without run"}
    assert sorted(row["id"] for row in by_spark.where("kind is not null").select("id").collect()) == ids
    figures = count_ledger_records(by_spark)
    assert (figures.records, figures.torn) == (len(ids), by_core.count(None))


def test_a_line_that_no_writer_has_is_passed_over(spark: SparkSession, tmp_path: Path):
    """Spark would hold it in memory."""
    lines = [json.dumps(WHOLE | {"id": name}) for name in ("a", "long", "z")]
    write(tmp_path / "a-99999999.jsonl", lines[0], lines[1] + " " * 70_000, lines[2])

    by_spark = read_ledger(spark, str(tmp_path)).where("kind is not null").select("id", "block").collect()

    assert [row["id"] for row in by_spark] == ["a", "z"]
    assert [each.message_id for each in read_records(tmp_path) if each is not None] == ["a", "z"]


def test_records_of_a_run_are_read_without_those_of_others(spark: SparkSession, tmp_path: Path):
    for number, run in enumerate(("monday", "tuesday: again", "monday")):
        with Ledger(tmp_path, run=run) as ledger:
            ledger.observe(MessagesSyphoned("flights", "q", (MessageRef(f"m-{number}", 1),), time.time()))
    write(tmp_path / "old.jsonl", json.dumps(WHOLE | {"id": "m", "run": "monday"}))
    since = time.time() - 60
    for run, ids in (("monday", ["m-0", "m-2"]), ("tuesday: again", ["m-1"]), ("wednesday", [])):
        records = read_run(spark, str(tmp_path), run=run, since=since)
        assert sorted(row["id"] for row in records.where("kind = 'syphoned'").collect()) == ids
        assert len(records.inputFiles()) == len(ids), "the cost does not grow with the ledger"
    assert read_ledger(spark, str(tmp_path)).where("kind = 'syphoned'").count() == 3


def test_moves_recorded_since_are_read_and_those_of_closed_files_not_again(spark: SparkSession, tmp_path: Path):
    def move(ledger: Ledger, *ids: str) -> None:
        refs = tuple(MessageRef(each, 1) for each in ids)
        ledger.observe(MessagesSyphoned("flights", "q", refs, time.time()))

    with Ledger(tmp_path, run="closed") as closed:
        move(closed, "a", "b")
    with Ledger(tmp_path, run="open") as growing:
        move(growing, "c")
        records = read_ledger(spark, str(tmp_path)).persist()
        try:
            assert count_ledger_records(records).records == 3
            move(growing, "d")
            with Ledger(tmp_path, run="new") as new:
                move(new, "e")
            moves = read_moves(spark, str(tmp_path), records)
            assert sorted(row["id"] for row in moves.select("id").collect()) == ["a", "b", "c", "d", "e"]
            # Of a file that is read again, each move would be there twice.
            assert closed_files(records) == [closed.path.name]
        finally:
            records.unpersist()


def test_spark_and_core_reject_a_newer_version(spark: SparkSession, tmp_path: Path):
    write(tmp_path / "a.jsonl", json.dumps(WHOLE | {"id": "m", "v": 2}))
    with pytest.raises(ConfigurationError, match="records of version 2"):
        list(read_records(tmp_path))
    with pytest.raises(ConfigurationError, match="records of version 2"):
        count_ledger_records(read_ledger(spark, str(tmp_path)))


@pytest.mark.parametrize("store", ["folder", "URL"])
def test_a_compacted_ledger_has_the_same_records(store: str, spark: SparkSession, tmp_path: Path):
    """In a folder, and as segments below a URL, which Hadoop's file system reads."""
    ledger = str(tmp_path) if store == "folder" else tmp_path.as_uri()
    unclosed = written_ledger(ledger)

    def read() -> list[list[str]]:
        whole = read_ledger(spark, ledger)
        rows = whole.orderBy("file", "block", "line").drop("block", "line").collect()
        moves = read_moves(spark, ledger, whole).select("id", "run")
        run = read_run(spark, ledger, run="monday", since=0)
        return [[*map(repr, rows)], *(sorted(map(repr, each.collect())) for each in (moves, run))]

    before = read()
    assert [len(rows) for rows in before] == [3 * 41 + 1, 30, 2 * 40 + 1], "lines that close a file have no time"
    assert len({row["file"] for row in read_ledger(spark, ledger).select("file").collect()}) == 4
    assert len(closed_files(read_ledger(spark, ledger))) == 3
    assert compact(spark, ledger=ledger).files == 0, "today's files are left as they are"
    compacted = compact(spark, ledger=ledger, keep_days=0)
    segments = {"folder": 1, "URL": 2}[store]  # with the moves, and with the rest
    assert compacted == Compaction(folders=2, files=3 * segments, records=120, left=1)
    assert [writer_name(file.name) for file in tmp_path.rglob("*.jsonl")] == [unclosed]
    assert read() == before
    (tmp_path / ".compacting").write_bytes(b"\xff" * 10_000)
    with pytest.raises(ConfigurationError, match=r"another compaction of .* delete"):
        compact(spark, ledger=ledger)
    with pytest.raises(ConfigurationError, match="has no files: name the folder"):
        compact(spark, ledger=f"{ledger}/nothing")
