"""The data source writes tables (SPEC sections 4 and 9): checked first, at least once, with stable ids."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses
from pyspark.sql.types import StringType, StructField, StructType

from servicebus_pair.core.ledger.manifest import PublishManifest
from servicebus_pair.spark.base.message_ids import MessageIdGenerator
from servicebus_pair.spark.datasource.options import WriteOptions
from servicebus_pair.spark.datasource.write_task import PACED_BATCH_SECONDS, WriteTask, max_batch_rows, write_rows
from servicebus_pair.spark.datasource.writer import ServiceBusWriter, parse_write_options
from tests.spark.conftest import CANARY, Pair, Session
from tests.spark.support.ledger_files import recorded
from tests.spark.support.process_kill import suspended_workers

ROWS, RATE = 300, 40  # a task of seven seconds, killed in its first
BATCH = int(RATE * PACED_BATCH_SECONDS)
LATER = datetime(2040, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


def writer(table: DataFrame, pair: Pair, **options: Any) -> DataFrameWriter:
    return table.write.format("servicebus").option("credential", pair.reference).options(**options).mode("append")


def bodies(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).select(F.format_string("body %d", "id").alias("body"))


def test_every_column_reaches_the_message(spark: SparkSession, pair: Pair):
    queue = pair.fresh_queue()
    columns = (
        "entity string, body binary, messageId string, sessionId string, subject string, correlationId string, "
        "contentType string, replyTo string, to string, partitionKey string, timeToLive double, "
        "scheduledEnqueueTime timestamp, applicationProperties map<string,bigint>"
    )
    full = (queue, b"\x00\xff", "m-1", "s", "UA", "c", "text/plain", "back", "there", "s", 90.0, LATER, {"far": 2**40})
    bare = (queue, b"", "m-2", *[None] * 10)
    writer(spark.createDataFrame([full, bare], columns), pair).save()
    found, empty = (found.content for found in sorted(pair.peek(queue), key=lambda found: found.key))
    assert (found.body, found.session_id, found.subject, found.correlation_id) == (b"\x00\xff", "s", "UA", "c")
    assert (found.content_type, found.reply_to, found.to, found.partition_key) == ("text/plain", "back", "there", "s")
    assert (found.time_to_live, found.scheduled_for) == (timedelta(seconds=90), LATER)
    assert found.properties == {"far": 2**40}
    assert (empty.body, empty.session_id, empty.reply_to, empty.to, empty.partition_key) == (b"", *[None] * 4)


def test_entity_column_overrides_the_option(spark: SparkSession, pair: Pair, tmp_path: Path):
    here, there = pair.fresh_queue(), pair.fresh_queue()
    table = bodies(spark, 30).withColumn("entity", F.when(F.col("body").endswith("1"), F.lit(there)))
    manifest = tmp_path / "deep" / "manifest.json"
    writer(table, pair, entity=here, manifest=manifest, run="both").save()
    assert {found.content.body for found in pair.peek(there)} == {b"body 1", b"body 11", b"body 21"}
    assert len(pair.peek(here)) == 27
    read = PublishManifest.from_json(json.loads(manifest.read_text()))
    assert {entity: each.primary for entity, each in read.entities.items()} == {here: 27, there: 3}
    assert (read.run, read.diverted) == ("both", 0)
    assert read.bytes > 30 * len("body 1")


def test_session_order_is_kept_with_batches_in_flight(spark: SparkSession, pair: Pair):
    queue = pair.fresh_queue()
    table = spark.range(0, 3000, 1, 1).select(
        F.concat(F.lpad(F.col("id").cast("string"), 5, "0"), F.lit("x" * 1000)).alias("body"),
        F.concat(F.lit("session "), F.col("id") % 7).alias("sessionId"),
    )
    writer(table, pair, entity=queue, maxBatchesInFlight=4).save()
    order = defaultdict(list)
    for found in pair.peek(queue):
        order[found.content.session_id].append(found.content.body[:5])
    assert sum(map(len, order.values())) == 3000
    assert all(numbers == sorted(numbers) for numbers in order.values())


def test_retried_task_repeats_its_message_ids(spark: SparkSession, pair: Pair, tmp_path: Path):
    queue, ledger = pair.fresh_queue(), tmp_path / "ledger"
    with ThreadPoolExecutor(1) as thread:
        writing = thread.submit(write, spark, pair, queue, ledger)
        with suspended_workers([os.getpid()], ledger, records=BATCH, ended=writing.done) as workers:
            (worker,) = workers
            worker.kill()
        writing.result(timeout=110)
    copies = pair.bodies_by_id(queue)
    assert len(copies) == ROWS, "every row has one id, whichever attempt sent it"
    assert {body for (body, *_) in copies.values()} == {b"body %d" % number for number in range(ROWS)}
    assert all(len(set(same)) == 1 for same in copies.values()), "no id is used for two rows"
    arrived, records = sum(map(len, copies.values())), recorded(ledger)["primary"]
    assert records >= ROWS + BATCH, "the first attempt had sent a batch"
    assert records <= arrived <= records + BATCH, "at most the batch in flight is unrecorded"


def write(spark: SparkSession, pair: Pair, queue: str, ledger: Path) -> None:
    # Sets the active session of this thread, which Spark needs to find data sources.
    table = spark.createDataFrame([(f"body {number}",) for number in range(ROWS)], "body string").coalesce(1)
    writer(table, pair, entity=queue, ledger=ledger, run="twice", ratePerTask=RATE).save()


REJECTED: dict[str, Callable[[DataFrameWriter], DataFrameWriter]] = {
    "mode is overwrite, or complete for a stream: allowed is append": lambda w: w.mode("overwrite"),
    "option credential: the pair reference is invalid: allowed are env:NAME,": lambda w: w.option(
        "credential", f"SharedAccessKey={CANARY}"
    ),
}


@pytest.mark.parametrize("error", REJECTED)
def test_invalid_option_is_rejected_before_sending(error: str, spark: SparkSession, pair: Pair, tmp_path: Path):
    ledger = tmp_path / "ledger"
    writing = REJECTED[error](writer(bodies(spark, 3), pair, entity="flights", ledger=ledger))
    with pytest.raises(AnalysisException) as caught:
        writing.save()
    assert error in str(caught.value)
    assert CANARY not in str(caught.value)
    assert not ledger.exists()


def test_invalid_row_is_named_before_its_batch_is_sent(spark: SparkSession, pair: Pair, tmp_path: Path):
    queue = pair.fresh_queue()
    table = bodies(spark, 10).coalesce(1).withColumn("timeToLive", F.when(F.col("body") == "body 7", F.lit(-1)))
    with pytest.raises(PySparkException) as caught:
        writer(table, pair, entity=queue, ledger=tmp_path).save()
    assert "row 7 of partition 0 cannot be a message: column timeToLive is -1" in str(caught.value)
    assert pair.peek(queue) == []


def test_permanent_failure_is_tried_once(spark: SparkSession, pair: Pair, tmp_path: Path):
    with pytest.raises(PySparkException) as caught:
        writer(bodies(spark, 4).coalesce(1), pair, entity="no-queue-of-this-name", ledger=tmp_path / "ledger").save()
    assert "no-queue-of-this-name does not exist on contoso" in str(caught.value)
    assert len(list((tmp_path / "ledger").rglob("*.jsonl"))) == 1, "each attempt opens a ledger file"


def test_rows_that_were_read_can_be_written_back(spark: SparkSession, pair: Pair):
    queue = pair.fresh_queue()
    writer(spark.createDataFrame([("hello", "s", '{"far": 5}')], _THREE), pair, entity=queue).save()
    read = spark.read.format("servicebus").option("credential", pair.reference).option("entity", queue).load()
    writer(read, pair).save()
    first, second = pair.peek(queue)
    assert first.key == second.key
    assert first.content == second.content


def test_a_write_whose_tasks_have_folders_of_their_own_as_spools_says_so(
    pair: Pair, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    """SPEC section 10: what is in such a folder can only be seen on that machine."""
    queue, rows = pair.fresh_queue(), pa.RecordBatch.from_pylist([{"body": b"x"}])
    fsspec.register_implementation("store", MemoryFileSystem, clobber=True)
    for spool, hosts in (("", ["worker-7"]), ("store://spool", ["worker-7"]), ("/mnt/spool", ["driver"])):
        commit(pair, queue, rows, monkeypatch, hosts, spool=spool)
    assert "spool" not in caplog.text
    commit(pair, queue, rows, monkeypatch, ["worker-8", "driver", "worker-7"], spool="/mnt/spool")
    assert "option spool is a folder, and tasks ran on worker-7, worker-8: unless that is a mount" in caplog.text


def commit(
    pair: Pair, queue: str, rows: pa.RecordBatch, monkeypatch: pytest.MonkeyPatch, hosts: list[str], *, spool: str
) -> None:
    options = WriteOptions.parse({"credential": pair.reference, "entity": queue} | ({"spool": spool} if spool else {}))
    messages = []
    for host in hosts:
        monkeypatch.setattr("socket.gethostname", lambda host=host: host)
        messages.append(write_rows(WriteTask(options, "r", MessageIdGenerator("r", 0)), [rows]))
    monkeypatch.setattr("socket.gethostname", lambda: "driver")
    ServiceBusWriter(options).commit(messages)


def test_sessions_without_order_are_warned_of(caplog: pytest.LogCaptureFixture):
    schema = StructType([StructField(name, StringType()) for name in ("body", "sessionId")])
    options = {"credential": "env:PAIR", "entity": "flights"}
    parse_write_options(options | {"sessionsInOrder": "true"}, schema, overwrite=False)
    assert caplog.text == ""
    parse_write_options(options, schema, overwrite=False)
    assert "column sessionId: the order of a session is kept only if its rows are in one partition" in caplog.text


_THREE = "body string, sessionId string, applicationProperties string"


def test_plan_event_log_and_error_contain_no_secret(session: Session, pair: Pair):
    table = bodies(session.spark, 5)
    with pytest.raises(PySparkException) as caught:
        writer(table, pair, entity="no-queue-of-this-name").save()
    assert "no-queue-of-this-name does not exist on contoso" in str(caught.value)
    assert CANARY not in f"{caught.value!r} {caught.value}"
    log = session.event_log()
    assert "servicebus" in log
    assert CANARY not in log
    assert CANARY in pair.file.read_text(), "the executors read the canary"


def test_a_paced_batch_is_half_a_second_of_rows_and_at_least_one() -> None:
    assert [max_batch_rows(rate) for rate in (0.1, 1.0, 200.0, 1e6, None)] == [1, 1, 100, 10_000, 10_000]
