"""Tasks of one Python worker share connections: counted at the namespace, replaced when dead, never kept for long."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from servicebus_pair.spark.base.message_ids import MessageIdGenerator
from servicebus_pair.spark.base.redaction import SparkTaskError
from servicebus_pair.spark.connections import kept_connections, peek_client
from servicebus_pair.spark.datasource.commit_messages import check_failures, merge_commit_messages
from servicebus_pair.spark.datasource.options import ReadOptions, WriteOptions
from servicebus_pair.spark.datasource.reader import ServiceBusReader
from servicebus_pair.spark.datasource.write_task import WriteTask, write_rows
from tests.spark.conftest import CANARY, Pair
from tests.spark.support.ledger_files import records
from tests.spark.support.messages import numbered, send

FORKING = """
import os, sys
from servicebus_pair.spark.datasource.options import ReadOptions
from servicebus_pair.spark.datasource.reader import ServiceBusReader

def read():
    reader = ServiceBusReader(ReadOptions.parse({"credential": sys.argv[1], "entity": sys.argv[2]}, streaming=False))
    return sum(page.num_rows for part in reader.partitions() for page in reader.read(part))

counts = [read(), read()]
if (child := os.fork()) == 0:
    os._exit(0 if [read(), read()] == counts else 1)
assert os.waitpid(child, 0)[1] == 0
assert counts == [read(), read()] == [3, 3]
"""


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    kept_connections._end_own()
    yield
    kept_connections._end_own()


def connections(pair: Pair) -> tuple[int, int]:
    """Return how many connections to the primary are open, and how many were opened since its start."""
    with urllib.request.urlopen(f"http://{pair.primary.administration}/metrics", timeout=10) as page:
        figures = dict(
            re.findall(r"^servicebus_emulator_(connections\w*){.*} (\d+)", page.read().decode(), flags=re.MULTILINE)
        )
    return int(figures["connections"]), int(figures["connections_opened_total"])


def wait_for(expected: int, count: Callable[[], int]) -> None:
    deadline = time.monotonic() + 10
    while count() != expected and time.monotonic() < deadline:
        time.sleep(0.02)
    assert count() == expected


def read(reference: str, queue: str) -> int:
    reader = ServiceBusReader(ReadOptions.parse({"credential": reference, "entity": queue}, streaming=False))
    return sum(page.num_rows for part in reader.partitions() for page in reader.read(part))


def write(reference: str, rows: list[dict[str, Any]], **options: str) -> tuple[int, int]:
    """Return the counts by route. :raises SparkTaskError: the task fails, for now or for good."""
    task = WriteTask(WriteOptions.parse({"credential": reference} | options), "r", MessageIdGenerator("r", 0))
    done = write_rows(task, [pa.RecordBatch.from_pylist(rows)])
    check_failures([done])
    manifest = merge_commit_messages([done])
    return manifest.primary, manifest.diverted


def test_tasks_of_a_worker_open_a_connection_once_and_none_is_kept_idle(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    queue = pair.fresh_queue()
    open_before, opened_before = connections(pair)
    for number in range(1, 6):
        ledger = tmp_path / str(number)
        assert write(pair.reference, [{"entity": queue, "body": b"x"}], ledger=str(ledger)) == (1, 0)
        assert len(list(records(ledger))) == 1, "the record of this task, not that of another one"
        assert read(pair.reference, queue) == number
    assert connections(pair) == (open_before + 2, opened_before + 2)
    monkeypatch.setattr(kept_connections, "IDLE_SECONDS", 0.05)
    assert read(pair.reference, queue) == write(pair.reference, [{"entity": queue, "body": b"x"}])[0] * 5
    wait_for(open_before, lambda: connections(pair)[0])


def test_a_few_connections_are_kept_and_none_after_a_failure(pair: Pair, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(kept_connections, "MAX_KEPT", 1)
    monkeypatch.setattr(peek_client, "_MAX_LINKS", 2)
    queues = [pair.fresh_queue() for _ in range(4)]
    before = connections(pair)[0]
    for queue in queues:
        assert read(pair.reference, queue) == 0
    wait_for(before + 2, lambda: connections(pair)[0])
    assert write(pair.reference, [{"entity": queues[0], "body": b"x"}]) == (1, 0)
    wait_for(before + 1, lambda: connections(pair)[0])
    for rows in (
        [{"entity": queues[0], "body": None}],
        [{"entity": each, "body": b"x"} for each in (queues[0], "no-queue")],
    ):
        with pytest.raises(SparkTaskError):
            write(pair.reference, rows)
        wait_for(before, lambda: connections(pair)[0])


def test_sections_4_and_5_a_namespace_that_was_killed_between_two_tasks_costs_no_error_and_no_divert(pair: Pair):
    queues = [pair.fresh_queue() for _ in range(2)]
    at_once = {"failoverInterval": "0"}
    rows = [{"entity": queue, "body": b"x"} for queue in queues]
    assert write(pair.reference, rows, **at_once) == (2, 0)
    assert [read(pair.reference, queue) for queue in queues] == [1, 1]
    pair.processes.kill(pair.primary.process)
    pair.primary.start(pair.processes)
    assert write(pair.reference, rows, **at_once) == (2, 0)
    assert [read(pair.reference, queue) for queue in queues] == [2, 2]
    pair.processes.kill(pair.primary.process)
    try:
        assert write(pair.reference, rows[:1], **at_once) == (0, 1), "the secondary takes it at once"
    finally:
        pair.primary.start(pair.processes)
    assert write(pair.reference, rows[1:], **at_once) == (1, 0)


def test_a_reference_with_other_settings_uses_no_connection_of_the_old_ones(pair: Pair, tmp_path: Path):
    queue, file = pair.fresh_queue(), tmp_path / "own.json"
    row = [{"entity": queue, "body": b"x"}]
    for key, works in ((CANARY, True), ("another-key", False), (CANARY, True)):
        file.write_text(json.dumps(pair.settings).replace(CANARY, key))
        before = connections(pair)[1]
        if works:
            assert write(f"file:{file}", row) == (1, 0)
            assert read(f"file:{file}", queue) in {1, 2}
        else:
            with pytest.raises(SparkTaskError, match="Authentication"):
                read(f"file:{file}", queue)
            with pytest.raises(SparkTaskError, match="Authentication"):
                write(f"file:{file}", row)
        assert connections(pair)[1] >= before + 2


def test_a_forked_process_opens_its_own_connections(pair: Pair):
    queue = pair.fresh_queue()
    send(pair, queue, *numbered(3))
    before = connections(pair)[1]
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORKING, pair.reference, queue], check=True, timeout=60)
    assert connections(pair)[1] == before + 2


def test_spark_reuses_its_workers_and_what_they_have_open(spark: SparkSession, pair: Pair):
    queue = pair.fresh_queue()
    before = connections(pair)[1]
    reader = spark.read.format("servicebus").option("credential", pair.reference).option("entity", queue).load()
    assert [reader.count() for _ in range(8)] == [0] * 8
    assert connections(pair)[1] - before <= 4, "one for each worker of two cores, not one for each task"
