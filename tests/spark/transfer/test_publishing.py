"""Publishing a table through failover-aware senders (SPEC sections 4 and 9), checked before anything is sent."""

from __future__ import annotations

import json
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core import EntityHealth, HealthState
from servicebus_pair.core.ledger.manifest import PublishManifest
from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.spark import ReceivingEntity, publish, reconcile, with_message_ids
from tests.spark.conftest import Pair
from tests.spark.support.ledger_files import records, wait_for_records


def numbered(spark: SparkSession, count: int, *, to: str) -> DataFrame:
    return spark.range(count).select(
        F.lit(to).alias("entity"),
        F.format_string("body %d", "id").alias("body"),
        F.format_string("m-%05d", "id").alias("messageId"),
    )


@pytest.mark.slow
@pytest.mark.timeout(600)  # a bound of what hangs
def test_outage_during_publish_diverts_and_loses_nothing(spark: SparkSession, pair: Pair, tmp_path: Path):
    flights, briefings = pair.fresh_queue(), pair.fresh_queue()
    table = numbered(spark, 1000, to=flights).unionByName(numbered(spark, 200, to=briefings))
    ledger = tmp_path / "ledger"
    with ThreadPoolExecutor(1) as thread:
        publishing = thread.submit(
            publish,
            table,
            pair_reference=pair.reference,
            ledger=str(tmp_path / "ledger"),
            run="outage",
            rate=80.0,  # 15 s, in the first of which the outage comes
            partitions=4,
        )
        wait_for_records(ledger, 80, "primary", ended=publishing.done)
        pair.processes.kill(pair.primary.process)
        wait_for_records(ledger, 200, "backlog", ended=publishing.done)
        pair.primary.start(pair.processes)
        manifest = publishing.result(timeout=240)
    assert manifest.primary + manifest.diverted == 1200
    assert manifest.diverted >= 200
    assert manifest.entities[flights].health.since > 0, "the task's health is returned"
    waiting = reconcile(
        spark,
        pair_reference=pair.reference,
        ledger=str(tmp_path / "ledger"),
        receiving_entities=[ReceivingEntity.parse(flights), ReceivingEntity.parse(briefings)],
        output=str(tmp_path / "proof"),
    )
    assert (waiting.totals.sent, waiting.totals.lost) == (1200, 0)
    assert waiting.totals.waiting + waiting.totals.delivered == 1200
    assert waiting.totals.waiting >= 200


def test_health_is_passed_to_executors_and_returned(spark: SparkSession, pair: Pair, tmp_path: Path):
    queue = pair.fresh_queue()
    # The manual failover lasts: otherwise a late task would ping and find the primary healthy (SPEC section 5).
    known = EntityHealth(HealthState.FAILED_OVER, time.time(), None, "manual failover", "drill", time.time() + 60)
    manifest = publish(
        numbered(spark, 20, to=queue),
        pair_reference=pair.reference,
        ledger=str(tmp_path),
        run="r",
        health={queue: known},
        partitions=1,
    )
    assert (manifest.primary, manifest.diverted) == (0, 20)
    assert manifest.entities[queue].health.failed_over
    assert pair.peek(queue) == []
    assert PublishManifest.from_json(json.loads(json.dumps(manifest.to_json()))) == manifest


def test_rate_limits_all_tasks_together(spark: SparkSession, pair: Pair, tmp_path: Path):
    manifest = publish(
        numbered(spark, 400, to=pair.fresh_queue()),
        pair_reference=pair.reference,
        ledger=str(tmp_path),
        run="r",
        rate=200.0,
        partitions=2,
    )
    assert manifest.seconds >= 2.0
    assert Counter(record["run"] for record in records(tmp_path)) == {"r": 400}


def test_generated_ids_do_not_depend_on_partitioning(spark: SparkSession, pair: Pair, tmp_path: Path):
    queue = pair.fresh_queue(requires_duplicate_detection=True)
    for cores, partitions in ((2, 2), (8, 3)):
        # Each row twice: equal rows are different messages.
        rows = spark.range(0, 40, 1, cores).select(F.format_string("body %d", F.col("id") % 20).alias("body"))
        table = rows.withColumn("applicationProperties", F.create_map(F.lit("far"), F.length("body")))
        manifest = publish(
            table,
            pair_reference=pair.reference,
            ledger=str(tmp_path),
            run="monday",
            entity=queue,
            partitions=partitions,
        )
        assert manifest.primary == 40
    found = Counter(item.content.body for item in pair.peek(queue))
    assert found == {b"body %d" % number: 2 for number in range(20)}, "the second run repeated the ids of the first"
    assert all(item.key[1].startswith("monday-") for item in pair.peek(queue))


def test_ids_are_those_of_the_content_and_given_ids_are_kept(spark: SparkSession):
    columns = "body string, subject string, to string, messageId string"
    rows = [("x", "a", None, None), ("x", None, "a", None), ("x", "a", None, None), ("x", "a", None, "mine")]
    made = [
        sorted(row["messageId"] for row in with_message_ids(table.repartition(parts), run="r").collect())
        for table in (spark.createDataFrame(rows, columns),)
        for parts in (1, 4)
    ]
    assert made[0] == made[1]
    assert len(set(made[0])) == 4
    assert "mine" in made[0]
    other = with_message_ids(spark.createDataFrame(rows, columns), run="s")
    assert {row["messageId"] for row in other.collect()} & set(made[0]) == {"mine"}


def test_rows_of_a_session_are_sent_in_table_order(spark: SparkSession, pair: Pair, tmp_path: Path):
    queue = pair.fresh_queue()
    rows = spark.range(0, 400, 1, 4).select(
        F.format_string("%04d", "id").alias("body"),
        F.when(F.col("id") % 5 > 0, F.format_string("session %d", F.col("id") % 5)).alias("sessionId"),
    )
    publish(rows, pair_reference=pair.reference, ledger=str(tmp_path), run="r", entity=queue, partitions=3)
    found = pair.peek(queue)
    assert len(found) == 400
    for session in ("session 1", "session 2", "session 3", "session 4"):
        sent = [item.content.body for item in found if item.content.session_id == session]
        assert len(sent) == 80
        assert sent == sorted(sent)


INVALID = {
    "column entity and option entity are both missing": lambda table: table.drop("entity"),
    "column colour is unknown: allowed are body, entity,": lambda table: table.withColumn("colour", F.lit("red")),
    "column body is invalid in 1 rows: it must not be null": lambda table: table.withColumn(
        "body", F.when(F.col("messageId") != "m-00003", F.col("body"))
    ),
    "column entity is invalid in 10 rows": lambda table: table.withColumn("entity", F.lit(" ")),
    "column entity is invalid in 10 rows: it must name": lambda table: table.withColumn("entity", F.lit("a\u202eb")),
    "column messageId is invalid in 10 rows: it must have at most 128": lambda table: table.withColumn(
        "messageId", F.repeat(F.lit("x"), 129)
    ),
    "column timeToLive is invalid in 10 rows: it must be whole seconds from 1": lambda table: table.withColumn(
        "timeToLive", F.lit(1.5)
    ),
    "column partitionKey is invalid in 10 rows: it must equal sessionId": lambda table: table.withColumns(
        {"sessionId": F.lit("a"), "partitionKey": F.lit("b")}
    ),
    "column scheduledEnqueueTime is invalid in 10 rows: it must not be before 1970": lambda table: table.withColumn(
        "scheduledEnqueueTime", F.timestamp_seconds(F.lit(-1))
    ),
    "column applicationProperties is invalid in 10 rows: it must be a JSON object of plain": lambda table: (
        table.withColumn("applicationProperties", F.lit('{"a": {"b": 1}}'))
    ),
}


@pytest.mark.parametrize("message", INVALID)
def test_invalid_table_is_rejected_before_sending(message: str, spark: SparkSession, pair: Pair, tmp_path: Path):
    table = INVALID[message](numbered(spark, 10, to="flights"))
    with pytest.raises(ConfigurationError) as caught:
        publish(table, pair_reference=pair.reference, ledger=str(tmp_path / "ledger"), run="r")
    assert str(caught.value).startswith(message)
    assert not (tmp_path / "ledger").exists()
