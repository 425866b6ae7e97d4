"""A task has a bounded number of batches under way, whatever the entities do, and answers for all of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from servicebus_emulator.faults import Fault, FaultKind, Operation
from servicebus_pair.core.results import DrainReport
from servicebus_pair.core.syphon import Syphon
from servicebus_pair.spark.naming import Position
from servicebus_pair.spark.options import WriteOptions
from servicebus_pair.spark.receipts import merged
from servicebus_pair.spark.redaction import SparkTaskError
from servicebus_pair.spark.writing import WriteTask, write_rows
from tests.spark.conftest import Pair
from tests.spark.diverting import own_backlog

PATIENCE = 2  # seconds of failure, after which a send is diverted


def accepted_at(ledger: Path) -> list[float]:
    return [json.loads(line)["at"] for file in ledger.glob("*.jsonl") for line in file.read_text().splitlines()]


@pytest.mark.parametrize(("in_flight", "waits"), [(2, True), (3, False)])
def test_a_batch_more_than_allowed_waits_for_one_that_is_not_answered(
    in_flight: int, waits: bool, pair: Pair, tmp_path: Path
):
    queues = [pair.fresh_queue() for _ in range(3)]
    options = {"failoverInterval": str(PATIENCE), "maxBatchesInFlight": str(in_flight), "ledger": str(tmp_path)}
    task = WriteTask(WriteOptions.of({"credential": pair.reference} | options), "r", Position("r", 0))
    rows = pa.RecordBatch.from_pylist([{"entity": queue, "body": b"x"} for queue in queues])
    # The first two sends are stored and never answered; the third one would be at once.
    for queue in queues[:2]:
        pair.primary.served.set_fault(Fault(kind=FaultKind.NO_DISPOSITION, entity=queue, on=(Operation.SEND,)))
    try:
        receipt = write_rows(task, [rows])
    finally:
        pair.primary.served.clear_faults()
    assert (min(accepted_at(tmp_path)) - receipt.began >= PATIENCE) is waits
    told = merged([receipt])
    counts = [(told.entities[queue].primary, told.entities[queue].diverted) for queue in queues]
    assert counts == [(0, 1), (0, 1), (1, 0)]
    assert told.entities[queues[0]].health.failed_over
    assert not told.entities[queues[2]].health.failed_over


def test_a_task_that_sends_begins_no_syphon(pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    own = own_backlog(pair, tmp_path, "asks-for-a-syphon", enable_syphon=True)
    begun: list[Syphon] = []
    run = Syphon.run

    async def noted(self: Syphon, **given: Any) -> DrainReport:
        begun.append(self)
        return await run(self, **given)

    monkeypatch.setattr(Syphon, "run", noted)
    task = WriteTask(WriteOptions.of({"credential": own.reference}), "r", Position("r", 0))
    rows = pa.RecordBatch.from_pylist([{"entity": own.fresh_queue(), "body": b"x"}])
    assert merged([write_rows(task, [rows])]).primary == 1
    assert begun == []


def test_a_row_that_is_too_large_is_named_and_what_was_sent_is_counted(pair: Pair, tmp_path: Path):
    queue = pair.fresh_queue()
    options = {"credential": pair.reference, "entity": queue, "ledger": str(tmp_path), "ratePerTask": "200"}
    task = WriteTask(WriteOptions.of(options), "r", Position("monday", 5))
    # A window of a task at this rate is a hundred rows: the first one goes, the second one has the row in it.
    sizes = [10] * 150 + [300_000] + [10] * 20
    rows = pa.RecordBatch.from_pylist([{"body": b"x" * size} for size in sizes])
    with pytest.raises(SparkTaskError) as caught:
        write_rows(task, [rows])
    told = str(caught.value)
    assert told.startswith(
        "partition 5 failed with 100 messages accepted by the primary and 0 by the backlog: SendError"
    )
    assert "message 'monday-5-150-" in told
    assert "the link takes 262144" in told
    assert len(accepted_at(tmp_path)) == len(pair.held(queue)) == 100
