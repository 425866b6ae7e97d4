"""The data source writes tables (SPEC sections 4 and 9): checked first, at least once, with ids that are repeated."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core.manifest import PublishManifest
from servicebus_pair.spark.pacing import WINDOW_SECONDS
from tests.spark.conftest import CANARY, Pair, Session
from tests.spark.killing import caught_at_work
from tests.spark.recorded import recorded

ROWS, RATE = 300, 40  # a task of seven seconds, which is killed in its first one
WINDOW = int(RATE * WINDOW_SECONDS)
LATER = datetime(2040, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


def writer(table: DataFrame, pair: Pair, **options: Any) -> DataFrameWriter:
    return table.write.format("servicebus").option("credential", pair.reference).options(**options).mode("append")


def bodies(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).select(F.format_string("body %d", "id").alias("body"))


def test_every_column_arrives_in_the_message(spark: SparkSession, pair: Pair):
    queue = pair.fresh_queue()
    columns = (
        "entity string, body binary, messageId string, sessionId string, subject string, correlationId string, "
        "contentType string, replyTo string, to string, partitionKey string, timeToLive double, "
        "scheduledEnqueueTime timestamp, applicationProperties map<string,bigint>"
    )
    full = (queue, b"\x00\xff", "m-1", "s", "UA", "c", "text/plain", "back", "there", "s", 90.0, LATER, {"far": 2**40})
    bare = (queue, b"", "m-2", *[None] * 10)
    writer(spark.createDataFrame([full, bare], columns), pair).save()
    found, empty = (found.content for found in sorted(pair.held(queue), key=lambda found: found.key))
    assert (found.body, found.session_id, found.subject, found.correlation_id) == (b"\x00\xff", "s", "UA", "c")
    assert (found.content_type, found.reply_to, found.to, found.partition_key) == ("text/plain", "back", "there", "s")
    assert (found.time_to_live, found.scheduled_for) == (timedelta(seconds=90), LATER)
    assert found.properties == {"far": 2**40}
    assert (empty.body, empty.session_id, empty.reply_to, empty.to, empty.partition_key) == (b"", *[None] * 4)


def test_a_row_goes_where_it_says_and_to_the_option_when_it_says_nothing(
    spark: SparkSession, pair: Pair, tmp_path: Path
):
    here, there = pair.fresh_queue(), pair.fresh_queue()
    table = bodies(spark, 30).withColumn("entity", F.when(F.col("body").endswith("1"), F.lit(there)))
    manifest = tmp_path / "deep" / "manifest.json"
    writer(table, pair, entity=here, manifest=manifest, run="both").save()
    assert {found.content.body for found in pair.held(there)} == {b"body 1", b"body 11", b"body 21"}
    assert len(pair.held(here)) == 27
    read = PublishManifest.from_json(json.loads(manifest.read_text()))
    assert {entity: each.primary for entity, each in read.entities.items()} == {here: 27, there: 3}
    assert (read.run, read.diverted) == ("both", 0)
    assert read.bytes > 30 * len("body 1")


def test_the_order_within_a_session_is_kept_while_several_batches_are_under_way(spark: SparkSession, pair: Pair):
    queue = pair.fresh_queue()
    table = spark.range(0, 3000, 1, 1).select(
        F.concat(F.lpad(F.col("id").cast("string"), 5, "0"), F.lit("x" * 1000)).alias("body"),
        F.concat(F.lit("session "), F.col("id") % 7).alias("sessionId"),
    )
    writer(table, pair, entity=queue, maxBatchesInFlight=4).save()
    order = defaultdict(list)
    for found in pair.held(queue):
        order[found.content.session_id].append(found.content.body[:5])
    assert sum(map(len, order.values())) == 3000
    assert all(numbers == sorted(numbers) for numbers in order.values())


def test_a_task_that_is_killed_and_tried_again_repeats_its_message_ids(spark: SparkSession, pair: Pair, tmp_path: Path):
    queue, ledger = pair.fresh_queue(), tmp_path / "ledger"
    with ThreadPoolExecutor(1) as thread:
        writing = thread.submit(in_a_thread(spark, pair, queue, ledger))
        with caught_at_work([os.getpid()], ledger, records=WINDOW, ended=writing.done) as workers:
            (worker,) = workers
            worker.kill()
        writing.result(timeout=110)
    copies = defaultdict(list)
    for found in pair.held(queue):
        copies[found.key[1]].append(found.content.body)
    assert len(copies) == ROWS, "every row has one id, whichever attempt sent it"
    assert {body for (body, *_) in copies.values()} == {b"body %d" % number for number in range(ROWS)}
    assert all(len(set(same)) == 1 for same in copies.values()), "no id stands for two rows"
    arrived, told = sum(map(len, copies.values())), recorded(ledger)["primary"]
    assert told >= ROWS + WINDOW, "the first attempt had sent them"
    assert told <= arrived <= told + WINDOW, "beside what no record tells of: the window that was under way"


def in_a_thread(spark: SparkSession, pair: Pair, queue: str, ledger: Path) -> Callable[[], None]:
    def write() -> None:
        # Makes the session that of this thread, where Spark looks data sources up.
        table = spark.createDataFrame([(f"body {number}",) for number in range(ROWS)], "body string").coalesce(1)
        writer(table, pair, entity=queue, ledger=ledger, run="twice", ratePerTask=RATE).save()

    return write


def test_the_same_run_again_adds_nothing_to_an_entity_with_duplicate_detection(spark: SparkSession, pair: Pair):
    queue = pair.fresh_queue(requires_duplicate_detection=True)
    for _ in range(2):
        writer(bodies(spark, 40).repartition(2), pair, entity=queue, run="monday").save()
    found = pair.held(queue)
    assert sorted(item.content.body for item in found) == sorted(b"body %d" % number for number in range(40))
    assert all(item.key[1].startswith("monday-") for item in found)


REFUSED: dict[str, Callable[[DataFrameWriter], DataFrameWriter]] = {
    "mode is overwrite, and of a stream complete: allowed is append": lambda w: w.mode("overwrite"),
    "option colour is unknown: allowed are credential,": lambda w: w.option("colour", "red"),
    "option credential: the pair reference is not one: allowed are env:NAME,": lambda w: w.option(
        "credential", f"SharedAccessKey={CANARY}"
    ),
}


@pytest.mark.parametrize("says", REFUSED)
def test_a_wrong_option_is_refused_on_the_driver_before_anything_is_sent(
    says: str, spark: SparkSession, pair: Pair, tmp_path: Path
):
    ledger = tmp_path / "ledger"
    writing = REFUSED[says](writer(bodies(spark, 3), pair, entity="flights", ledger=ledger))
    with pytest.raises(AnalysisException) as caught:
        writing.save()
    assert says in str(caught.value)
    assert CANARY not in str(caught.value)
    assert not ledger.exists()


def test_a_wrong_column_is_refused_on_the_driver_before_anything_is_sent(
    spark: SparkSession, pair: Pair, tmp_path: Path
):
    ledger = tmp_path / "ledger"
    for says, table in {
        "column body is missing": bodies(spark, 3).withColumnRenamed("body", "subject"),
        "column entity is missing, and so is the option entity": bodies(spark, 3),
        "column entity is int: allowed is string": bodies(spark, 3).withColumn("entity", F.lit(5)),
    }.items():
        with pytest.raises(AnalysisException) as caught:
            writer(table, pair, ledger=ledger).save()
        assert says in str(caught.value)
    assert not ledger.exists()


def test_a_manifest_that_could_not_be_written_is_refused_before_anything_is_sent(
    spark: SparkSession, pair: Pair, tmp_path: Path
):
    with pytest.raises(AnalysisException, match="which is a folder: allowed is the path of a file"):
        writer(bodies(spark, 3), pair, entity="flights", ledger=tmp_path / "ledger", manifest=tmp_path).save()
    assert not (tmp_path / "ledger").exists()


def test_a_row_that_cannot_be_sent_is_named_before_any_of_its_window_is_sent(
    spark: SparkSession, pair: Pair, tmp_path: Path
):
    queue = pair.fresh_queue()
    table = bodies(spark, 10).coalesce(1).withColumn("timeToLive", F.when(F.col("body") == "body 7", F.lit(-1)))
    with pytest.raises(PySparkException) as caught:
        writer(table, pair, entity=queue, ledger=tmp_path).save()
    assert "row 7 of partition 0 cannot be a message: column timeToLive is -1" in str(caught.value)
    assert pair.held(queue) == []


def test_no_secret_is_in_the_plan_the_event_log_or_the_error(session: Session, pair: Pair):
    table = bodies(session.spark, 5)
    with pytest.raises(PySparkException) as caught:
        writer(table, pair, entity="no-queue-of-this-name").save()
    assert "EntityNotFoundError" in str(caught.value)
    assert CANARY not in f"{caught.value!r} {caught.value}"
    log = session.event_log()
    assert "servicebus" in log
    assert CANARY not in log
    assert CANARY in pair.file.read_text(), "the canary is what executors read"
