"""A write task limits its batches in flight and reports what it sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from servicebus_emulator.faults import Fault, FaultKind, Operation
from servicebus_pair.core.ledger.segments import writer_name
from servicebus_pair.core.model.results import DrainReport
from servicebus_pair.core.syphon.drain import Syphon
from servicebus_pair.spark.base.message_ids import MessageIdGenerator
from servicebus_pair.spark.base.redaction import SparkTaskError
from servicebus_pair.spark.datasource.commit_messages import merge_commit_messages
from servicebus_pair.spark.datasource.options import WriteOptions
from servicebus_pair.spark.datasource.write_task import WriteTask, max_batch_rows, write_rows
from tests.spark.conftest import Pair
from tests.spark.support.ledger_files import records
from tests.spark.support.own_backlog import own_backlog

FAILOVER_INTERVAL = 2  # seconds


def accepted_at(ledger: Path) -> list[float]:
    return [record["at"] for record in records(ledger)]


@pytest.mark.parametrize(("in_flight", "delayed"), [(2, True), (3, False)])
def test_batches_in_flight_are_limited(in_flight: int, delayed: bool, pair: Pair, tmp_path: Path):
    queues = [pair.fresh_queue() for _ in range(3)]
    options = {
        "failoverInterval": str(FAILOVER_INTERVAL),
        "maxBatchesInFlight": str(in_flight),
        "ledger": str(tmp_path),
    }
    task = WriteTask(WriteOptions.parse({"credential": pair.reference} | options), "r", MessageIdGenerator("r", 0))
    rows = pa.RecordBatch.from_pylist([{"entity": queue, "body": b"x"} for queue in queues])
    # The first two sends are stored but never settled; the third is settled at once.
    for queue in queues[:2]:
        pair.primary.served.set_fault(Fault(kind=FaultKind.NO_DISPOSITION, entity=queue, on=(Operation.SEND,)))
    try:
        commit_message = write_rows(task, [rows])
    finally:
        pair.primary.served.clear_faults()
    assert (min(accepted_at(tmp_path)) - commit_message.started_at >= FAILOVER_INTERVAL) is delayed
    manifest = merge_commit_messages([commit_message])
    counts = [(manifest.entities[queue].primary, manifest.entities[queue].diverted) for queue in queues]
    assert counts == [(0, 1), (0, 1), (1, 0)]
    assert manifest.entities[queues[0]].health.failed_over
    assert not manifest.entities[queues[2]].health.failed_over


def test_write_task_does_not_start_a_syphon(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    own = own_backlog(pair, tmp_path, enable_syphon=True)
    started: list[Syphon] = []
    run = Syphon.run

    async def record(self: Syphon, **options: Any) -> DrainReport:
        started.append(self)
        return await run(self, **options)

    monkeypatch.setattr(Syphon, "run", record)
    task = WriteTask(WriteOptions.parse({"credential": own.reference}), "r", MessageIdGenerator("r", 0))
    rows = pa.RecordBatch.from_pylist([{"entity": own.fresh_queue(), "body": b"x"}])
    assert merge_commit_messages([write_rows(task, [rows])]).primary == 1
    assert started == []


def test_section_10_a_write_refuses_a_spool_with_session_order_for_which_tasks_share_no_health(pair: Pair):
    options = {"credential": pair.reference, "entity": "flights", "ordering": "session", "spool": "/mnt/spool"}
    task = WriteTask(WriteOptions.parse(options), "r", MessageIdGenerator("r", 0))
    with pytest.raises(SparkTaskError, match="option ordering is session, and spool is '/mnt/spool'"):
        write_rows(task, [pa.RecordBatch.from_pylist([{"body": b"x"}])])


def test_too_large_row_is_named_and_sent_messages_are_counted(pair: Pair, tmp_path: Path):
    queue = pair.fresh_queue()
    options = {"credential": pair.reference, "entity": queue, "ledger": str(tmp_path), "ratePerTask": "200"}
    task = WriteTask(WriteOptions.parse(options), "r", MessageIdGenerator("monday", 5))
    # At this rate a batch has 100 rows: the first is sent, the second contains the large row.
    sizes = [10] * 150 + [300_000] + [10] * 20
    rows = pa.RecordBatch.from_pylist([{"body": b"x" * size} for size in sizes])
    error = write_rows(task, [rows]).failure
    assert error is not None, "raised, Spark would repeat the task"
    assert error.startswith(
        "partition 5 failed with 100 messages accepted by the primary and 0 by the backlog: SendError"
    )
    assert "message 'monday-5-" in error
    assert "the link takes 262144" in error
    assert len(accepted_at(tmp_path)) == len(pair.peek(queue)) == 100


def test_section_9_each_batch_of_rows_is_in_a_store_before_the_next_is_sent(pair: Pair, tmp_path: Path):
    queue, ledger = pair.fresh_queue(), tmp_path / "ledger"
    options = {"credential": pair.reference, "entity": queue, "ledger": ledger.as_uri(), "ratePerTask": "4"}
    assert max_batch_rows(4) == 2
    task = WriteTask(WriteOptions.parse(options), "r", MessageIdGenerator("r", 0))
    done = write_rows(task, [pa.RecordBatch.from_pylist([{"body": b"x"}] * 5)])
    segments = sorted(ledger.rglob("*.jsonl"))
    assert [len(each.read_text().splitlines()) for each in segments] == [2, 2, 1, 1], "the last one closes them"
    assert done.ledger == {writer_name(segments[0].name): 5}


def test_rows_that_can_never_be_sent_are_collected_and_the_rest_is_sent(pair: Pair, tmp_path: Path):
    queue, errors = pair.fresh_queue(), tmp_path / "errors"
    options = {"credential": pair.reference, "entity": queue, "onError": "collect", "errorTable": errors.as_uri()}
    task = WriteTask(WriteOptions.parse(options), "r", MessageIdGenerator("monday", 5))
    bodies = [b"x" * 10] * 50 + [b"x" * 300_000, None] + [b"y"] * 49
    table = [{"body": body, "timeToLive": -1.0 if number == 3 else None} for number, body in enumerate(bodies)]
    rows = pa.RecordBatch.from_pylist(table)
    for _ in range(2):  # another attempt replaces the file of the first
        done = write_rows(task, [rows])
        assert (done.failure, done.rejected, merge_commit_messages([done]).primary) == (None, 3, 98)
    [file] = errors.iterdir()
    collected = pq.read_table(file)
    assert collected.schema.names == ["body", "timeToLive", "error"]
    assert {(len(row["body"] or b""), row["timeToLive"]) for row in collected.to_pylist()} == {
        (10, -1.0),
        (300_000, None),
        (0, None),
    }
    reasons = "\n".join(sorted(row["error"] for row in collected.to_pylist()))
    for reason in ("column body is null", "column timeToLive is -1.0", "the link takes 262144"):
        assert reason in reasons
    assert len(pair.peek(queue)) == 2 * 98


def test_permanent_failure_of_the_entity_is_not_a_verdict_on_rows(pair: Pair, tmp_path: Path):
    options = {"credential": pair.reference, "entity": "no-such-queue", "onError": "collect"}
    task = WriteTask(
        WriteOptions.parse(options | {"errorTable": str(tmp_path / "errors")}), "r", MessageIdGenerator("r", 0)
    )
    done = write_rows(task, [pa.RecordBatch.from_pylist([{"body": b"x"}])])
    assert done.failure is not None
    assert "no-such-queue" in done.failure
    assert not (tmp_path / "errors").exists()
