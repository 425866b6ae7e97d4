"""Spark and the core read a ledger by the same rules (SPEC section 9)."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from servicebus_pair.core import Ledger
from servicebus_pair.core.events import MessageRef, MessagesAccepted, MessagesSyphoned, Route
from servicebus_pair.core.ledger.reader import read_records
from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.spark.analysis.compacting import Compaction, compact
from servicebus_pair.spark.analysis.observations import (
    closed_files,
    count_ledger_records,
    read_ledger,
    read_moves,
    read_run,
)
from servicebus_pair.spark.base.folded_ledger import fold

WHOLE = {"v": 1, "kind": "sent", "entity": "q", "route": "primary", "queue": None, "bytes": 9, "at": 1.5, "run": "r"}
BROKEN = [
    '{"v":1,"kind":"sent","id":"torn","ent',
    "",
    "[]",
    *(json.dumps({"id": f"without {name}"} | {k: v for k, v in WHOLE.items() if k != name}) for name in WHOLE),
    *(json.dumps(WHOLE | {"id": f"{name} is wrong", name: "x"}) for name in ("kind", "route", "bytes", "at")),
    *(json.dumps(WHOLE | {"id": f"{name} is true", name: True}) for name in ("bytes", "at")),
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


def columns_of(ledger: DataFrame) -> list[tuple[object, ...]]:
    order = ledger.drop("block", "line").columns
    return sorted((tuple(row[name] for name in order) for row in ledger.collect()), key=repr)


def order_of(ledger: DataFrame) -> dict[str, list[str]]:
    rows = sorted(ledger.where("kind = 'sent'").collect(), key=lambda row: (row["file"], row["block"], row["line"]))
    return {file: [row["id"] for row in rows if row["file"] == file] for file in {row["file"] for row in rows}}


def test_a_compacted_ledger_has_the_same_records_wherever_the_compaction_dies(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for run in ("monday", "monday", "tuesday: again"):
        with Ledger(tmp_path, run=run) as ledger:
            refs = tuple(MessageRef(f"{run}-{number}", 9, digest="d") for number in range(30))
            ledger.observe(MessagesAccepted("flights", Route.BACKLOG, "q", refs, time.time()))
            ledger.observe(MessagesSyphoned("flights", "q", refs[:10], time.time()))
    unclosed = Ledger(tmp_path, run="monday")
    unclosed.observe(MessagesAccepted("flights", Route.PRIMARY, None, (MessageRef("open", 9),), time.time()))
    (today,) = tmp_path.glob("day=*")

    def read() -> list[object]:
        whole = read_ledger(spark, str(tmp_path))
        run = read_run(spark, str(tmp_path), run="monday", since=0)
        moves = read_moves(spark, str(tmp_path), whole).select("id", "run")
        return [columns_of(whole), order_of(whole), *(sorted(map(repr, each.collect())) for each in (run, moves))]

    before = read()
    for name in ("replace", "unlink"):  # before and after the Parquet file has its name
        for count in (1, 2):
            calls = 0
            real = getattr(Path, name)

            def dying(path: Path, *values: Any, real: Any = real, count: int = count, **options: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls == count:
                    raise OSError("killed")
                return real(path, *values, **options)

            with monkeypatch.context() as patch:
                patch.setattr(Path, name, dying)
                with suppress(OSError):
                    fold(today / "run=monday")
            assert read() == before, (name, count)
    assert compact(spark, ledger=str(tmp_path)).files == 0, "today's files are left as they are"
    compact(spark, ledger=str(tmp_path), keep_days=0)
    assert read() == before
    assert [file.name for file in tmp_path.rglob("*.jsonl")] == [unclosed.path.name]
    assert compact(spark, ledger=str(tmp_path), keep_days=0) == Compaction(folders=2, files=0, records=0, left=1)
    with pytest.raises(ConfigurationError, match="was compacted"):
        list(read_records(tmp_path))
    (tmp_path / ".compacting").touch()
    with pytest.raises(ConfigurationError, match=r"another compaction of .* delete"):
        compact(spark, ledger=str(tmp_path))
