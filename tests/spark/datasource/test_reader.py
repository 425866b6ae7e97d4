"""The data source reads by peek (PLATFORM section 3): nothing is consumed, and offsets give the next position."""

from __future__ import annotations

import json
import time
from contextlib import redirect_stdout
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession, datasource
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses
from pyspark.sql.types import StructType

from servicebus_pair.core import EntityHealth, HealthState
from servicebus_pair.core.protocol.backlog_queues import backlog_queue_paths
from servicebus_pair.spark.base import offsets
from servicebus_pair.spark.base.redaction import SparkTaskError
from servicebus_pair.spark.base.spark_version import ReadLimit
from servicebus_pair.spark.datasource import reader as reader_module
from servicebus_pair.spark.datasource.options import ReadOptions
from servicebus_pair.spark.datasource.read_schema import SCHEMA
from servicebus_pair.spark.datasource.reader import (
    FilteringReader,
    PeekRange,
    ServiceBusReader,
    ServiceBusStreamReader,
)
from tests.spark.conftest import CANARY, Pair, Session
from tests.spark.support.messages import numbered, receiver_of, send

LATER = datetime(2040, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


def read(spark: SparkSession, pair: Pair, **options: str) -> DataFrame:
    return spark.read.format("servicebus").option("credential", pair.reference).options(**options).load()


def test_every_message_field_is_a_column_and_nothing_is_consumed(spark: SparkSession, pair: Pair):
    queue = pair.fresh_queue()
    properties: dict[str | bytes, Any] = {"far": 2**30, "by": "air", "late": 1.5, "own": True}
    full = ServiceBusMessage(
        b"\x00\xff",
        message_id="m-1",
        session_id="s",
        partition_key="s",
        time_to_live=timedelta(seconds=90),
        subject="UA",
        correlation_id="c",
        content_type="text/plain",
        reply_to="back",
        to="there",
        scheduled_enqueue_time_utc=LATER,
        application_properties=properties,
    )
    value = AmqpAnnotatedMessage(value_body={"a": [1, "x"]}, properties=AmqpMessageProperties(message_id="m-2"))
    send(pair, queue, full)
    send(pair, queue, value)
    table = read(spark, pair, entity=queue)
    assert table.schema == StructType.fromDDL(SCHEMA.ddl)
    first, second = table.orderBy("sequenceNumber").collect()
    assert (first.namespace, first.entity, first.subQueue, first.state) == ("contoso", queue, "main", "scheduled")
    assert (bytes(first.body), first.bodyType, first.messageId, first.sessionId) == (b"\x00\xff", "data", "m-1", "s")
    assert (first.subject, first.correlationId, first.contentType) == ("UA", "c", "text/plain")
    assert (first.replyTo, first.to, first.partitionKey) == ("back", "there", "s")
    assert (first.timeToLive, first.scheduledEnqueueTime.astimezone(UTC)) == (90.0, LATER)
    assert json.loads(first.applicationProperties) == properties
    assert (second.bodyType, json.loads(second.body), second.state) == ("value", {"a": [1, "x"]}, "active")
    assert (second.deliveryCount, second.applicationProperties, second.deadLetterReason) == (0, None, None)
    assert second.sequenceNumber > first.sequenceNumber
    assert abs((datetime.now(UTC) - second.enqueuedTime.astimezone(UTC)).total_seconds()) < 600
    assert len(pair.peek(queue)) == 2


def test_read_honors_offsets_with_a_task_per_queue(spark: SparkSession, pair: Pair):
    one, two = pair.fresh_queue(), pair.fresh_queue()
    send(pair, one, *numbered(1200))
    send(pair, two, *numbered(5))
    whole = read(spark, pair, entity=f"{one},{two}").select("entity", "sequenceNumber", "messageId").cache()
    assert whole.select(F.spark_partition_id()).distinct().count() == 2
    assert {row["entity"]: row["count"] for row in whole.groupBy("entity").count().collect()} == {one: 1200, two: 5}
    numbers = sorted(row.sequenceNumber for row in whole.where(whole.entity == one).collect())
    cut = read(
        spark,
        pair,
        entity=one,
        startingOffsets=json.dumps({one: numbers[100]}),
        endingOffsets=json.dumps({one: numbers[700]}),
    )
    assert sorted(row.sequenceNumber for row in cut.collect()) == numbers[100:700]


def test_dead_letters_have_reason_and_description(spark: SparkSession, pair: Pair):
    queue = pair.fresh_queue()
    send(pair, queue, *numbered(3))
    with receiver_of(pair, queue) as receiver:
        (message,) = receiver.receive_messages(max_message_count=1, max_wait_time=5)
        receiver.dead_letter_message(message, reason="Late", error_description="by two days")
    both = read(spark, pair, entity=queue, subQueue="main,deadLetter").collect()
    assert sorted((row.subQueue, row.messageId) for row in both) == [
        ("deadLetter", "m-0"),
        ("main", "m-1"),
        ("main", "m-2"),
    ]
    dead = next(row for row in both if row.subQueue == "deadLetter")
    assert (dead.deadLetterReason, dead.deadLetterErrorDescription, dead.entity) == ("Late", "by two days", queue)


def test_transfer_dead_letters_and_deferred_messages_are_distinguished(spark: SparkSession, pair: Pair):
    closed = pair.fresh_queue(status="SendDisabled")
    forwarding, deferring, empty = pair.fresh_queue(forward_to=closed), pair.fresh_queue(), pair.fresh_queue()
    send(pair, forwarding, *numbered(1))
    send(pair, deferring, *numbered(2, first=1))
    with receiver_of(pair, deferring) as receiver:
        (message,) = receiver.receive_messages(max_message_count=1, max_wait_time=5)
        receiver.defer_message(message)
    dead = read(spark, pair, entity=forwarding, subQueue="transferDeadLetter")
    rows = read(spark, pair, entity=f"{deferring},{empty}").union(dead)
    found = rows.select("entity", "subQueue", "messageId", "state").orderBy("messageId").collect()
    assert [tuple(row) for row in found] == [
        (forwarding, "transferDeadLetter", "m-0", "active"),
        (deferring, "main", "m-1", "deferred"),
        (deferring, "main", "m-2", "active"),
    ]


def test_subscription_is_read_by_path(spark: SparkSession, pair: Pair):
    path = "delays/Subscriptions/all"
    before = read(spark, pair, entity=path).count()
    table = spark.createDataFrame([("late", "delays")], "body string, entity string")
    table.write.format("servicebus").option("credential", pair.reference).mode("append").save()
    rows = read(spark, pair, entity=path).collect()
    assert len(rows) == before + 1
    assert {row.entity for row in rows} == {path}


def test_messages_arriving_during_a_read_are_excluded(pair: Pair):
    queue = pair.fresh_queue()
    send(pair, queue, *numbered(700))
    reader = ServiceBusReader(ReadOptions.parse({"credential": pair.reference, "entity": queue}, streaming=False))
    (whole,) = reader.partitions()
    pages = reader.read(whole)
    first = next(pages)
    send(pair, queue, *numbered(50, first=700))
    assert 0 < first.num_rows < 700
    assert first.num_rows + sum(page.num_rows for page in pages) == 700


def test_a_read_begins_and_ends_at_a_time(pair: Pair):
    queue = pair.fresh_queue()
    given = {"credential": pair.reference, "entity": queue}
    moments = []
    for first in range(0, 30, 10):
        send(pair, queue, *numbered(9, first=first), ServiceBusMessage("later", scheduled_enqueue_time_utc=LATER))
        time.sleep(0.02)
        moments.append(datetime.now(UTC).isoformat())
        time.sleep(0.02)

    def numbers(**options: str) -> list[int]:
        reader = ServiceBusReader(ReadOptions.parse(given | options, streaming=False))
        columns = [page.column("messageId") for part in reader.partitions() for page in reader.read(part)]
        return [int(each[2:]) for column in columns for each in column.to_pylist() if str(each).startswith("m-")]

    assert numbers(startingTimestamp=moments[0]) == [*range(10, 19), *range(20, 29)]
    assert numbers(startingTimestamp=moments[0], endingTimestamp=moments[1], tasks="3") == [*range(10, 19)]
    assert numbers(startingTimestamp=moments[2]) == [] == numbers(endingTimestamp="2001-01-01T00:00:00Z")
    if ReadLimit is None:
        return  # Spark 4.0 and 4.1 read no streams
    stream = ServiceBusStreamReader(ReadOptions.parse(given | {"startingTimestamp": moments[1]}, streaming=True))
    try:
        assert stream.initialOffset() == {queue: 20}, "the number of a scheduled message, which has no time yet"
    finally:
        stream.stop()


@pytest.mark.skipif(ReadLimit is None, reason="Spark 4.0 and 4.1 read no streams")
def test_a_stream_waits_for_the_minimum_of_a_batch_and_not_for_ever(pair: Pair, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(offsets, "_IDLE_SECONDS", 0.01)
    queue = pair.fresh_queue()
    given = {"credential": pair.reference, "entity": queue, "minMessagesPerTrigger": "5", "maxTriggerDelay": "30"}
    stream = ServiceBusStreamReader(ReadOptions.parse(given, streaming=True))
    clock = [100.0]
    monkeypatch.setattr(reader_module, "monotonic", lambda: clock[0])

    def planned(start: int) -> dict[str, int]:
        return stream.latestOffset({queue: start}, stream.getDefaultReadLimit())

    try:
        send(pair, queue, *numbered(1))
        assert planned(1) == {queue: 2}, "the first batch does not wait"
        send(pair, queue, *numbered(3))
        assert planned(2) == {queue: 2}
        clock[0] += 31
        assert planned(2) == {queue: 5}
        send(pair, queue, *numbered(5))
        assert planned(5) == {queue: 10}
    finally:
        stream.stop()


@pytest.mark.parametrize(
    ("entity", "options", "error"),
    [
        ("delays", {}, "is a topic; .* a topic through its subscriptions, topic/Subscriptions/name"),
        ("<session queue>", {}, "requires sessions; .* is read with option sessionId"),
        ("no-queue-to-read", {"subQueue": "deadLetter"}, "EntityNotFoundError: no-queue-to-read does not exist"),
    ],
)
def test_unreadable_entity_error_names_the_required_option(
    entity: str, options: dict[str, str], error: str, pair: Pair
):
    path = pair.fresh_queue(requires_session=True) if entity == "<session queue>" else entity
    given = {"credential": pair.reference, "entity": path} | options
    reader = ServiceBusReader(ReadOptions.parse(given, streaming=False))
    with pytest.raises(SparkTaskError, match=error):
        list(reader.read(reader.partitions()[0]))


def test_sessions_are_read_with_a_task_each(spark: SparkSession, pair: Pair):
    queue = pair.fresh_queue(requires_session=True)
    for session in ("a", "b", "c"):
        send(pair, queue, *numbered(4, session_id=session))
    rows = read(spark, pair, entity=queue, sessionId="a,c").select("sessionId", "messageId").collect()
    assert sorted(rows) == [(session, f"m-{number}") for session in ("a", "c") for number in range(4)]


def test_read_rows_can_be_written_with_their_types(spark: SparkSession, pair: Pair):
    queue, copy = pair.fresh_queue(), pair.fresh_queue()
    properties = {"far": 2**30, "by": "air", "late": 1.5, "own": True}
    send(pair, queue, *numbered(3, application_properties=properties, subject="UA"))
    table = read(spark, pair, entity=queue).select("body", "messageId", "subject", "applicationProperties")
    table.write.format("servicebus").option("credential", pair.reference).option("entity", copy).mode("append").save()
    found = pair.peek(copy)
    assert {item.key[1] for item in found} == {"m-0", "m-1", "m-2"}
    assert all(item.content.properties == properties and item.content.subject == "UA" for item in found)


def test_backlog_is_read_from_the_secondary(spark: SparkSession, pair: Pair):
    queue = pair.fresh_queue()
    down = EntityHealth(HealthState.FAILED_OVER, time.time(), None, "manual failover", "drill", time.time() + 60)
    table = spark.range(6).select(F.format_string("body %d", "id").alias("body"))
    writer = table.write.format("servicebus").option("credential", pair.reference).option("entity", queue)
    writer.option("health", json.dumps({queue: down.to_json()})).mode("append").save()
    found = read(spark, pair, entity=",".join(backlog_queue_paths("contoso", 2)), namespace="secondary")
    destination = F.get_json_object("applicationProperties", "$.x-ms-path")
    bodies = found.where((found.namespace == "contoso-dr") & (destination == queue)).select("body").collect()
    assert sorted(bytes(row.body) for row in bodies) == [b"body %d" % number for number in range(6)]


def test_invalid_range_is_rejected_on_the_driver(spark: SparkSession, pair: Pair):
    with pytest.raises(AnalysisException, match="option endingOffsets is 4 for flights: allowed is a number from 5"):
        read(spark, pair, entity="flights", startingOffsets='{"flights": 5}', endingOffsets='{"flights": 4}').collect()


def test_inline_credential_is_rejected_at_load(session: Session):
    given = f"Endpoint=sb://contoso;SharedAccessKeyName=k;SharedAccessKey={CANARY}"
    reader = session.spark.read.format("servicebus").option("entity", "flights").option("credential", given)
    with pytest.raises(AnalysisException, match="option credential: the pair reference is invalid") as caught:
        reader.load()
    assert CANARY not in f"{caught.value!r} {caught.value}"
    assert CANARY not in session.event_log()


def test_schema_with_another_type_is_rejected(spark: SparkSession, pair: Pair):
    reader = spark.read.format("servicebus").option("credential", pair.reference).option("entity", "flights")
    with pytest.raises(AnalysisException, match="the schema has body string: allowed are some or all of `namespace`"):
        reader.schema("body string").load().collect()


def test_a_queue_is_read_by_tasks_and_queries_reduce_what_is_built(spark: SparkSession, pair: Pair):
    queue = pair.fresh_queue()
    send(pair, queue, *numbered(1000))
    reader = spark.read.format("servicebus").option("credential", pair.reference).option("entity", queue)
    rows = reader.option("tasks", 3).schema("messageId string, sequenceNumber bigint").load()
    read_by = rows.groupBy(F.spark_partition_id()).agg(F.count("*"), F.count_distinct("messageId")).collect()
    assert sorted(tuple(row[1:]) for row in read_by) == [(332, 332), (334, 334), (334, 334)]
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        filtered = read(spark, pair, entity=queue, pushFilters="true").where("sequenceNumber between 400 and 409")
        assert sorted(row.sequenceNumber for row in filtered.where("state = 'active'").collect()) == [*range(400, 410)]
        assert filtered.where("state = 'deferred' or sequenceNumber < 402").count() == 2
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


@pytest.mark.skipif(not hasattr(datasource, "EqualTo"), reason="Spark 4.0 pushes no filters")
def test_filters_of_a_query_narrow_the_range_that_is_peeked(pair: Pair):
    from pyspark.sql.datasource import EqualTo, GreaterThan, In, LessThanOrEqual

    options = ReadOptions.parse({"credential": pair.reference, "entity": "flights"}, streaming=False)
    reader = FilteringReader(options)
    path = ("sequenceNumber",)
    filters = [GreaterThan(path, 9), LessThanOrEqual(path, 40), In(path, (12, 30, 50)), EqualTo(("state",), "active")]
    assert reader.pushFilters(filters) == filters, "Spark applies them as well"
    (part,) = reader.partitions()
    assert isinstance(part, PeekRange)
    assert (part.start, part.end) == (12, 41)


def test_plan_event_log_and_error_contain_no_secret(session: Session, pair: Pair):
    table = read(session.spark, pair, entity="no-queue-to-read")
    table.createOrReplaceTempView("read_by_reference")
    plans = [table._jdf.queryExecution().toString()]
    plans += [row.plan for row in session.spark.sql("EXPLAIN EXTENDED SELECT * FROM read_by_reference").collect()]
    with redirect_stdout(StringIO()) as explained:
        for mode in ("extended", "formatted", "codegen", "cost"):
            table.explain(mode=mode)
    with pytest.raises(PySparkException) as caught:
        table.collect()
    assert "EntityNotFoundError" in str(caught.value)
    for text in (*plans, explained.getvalue(), session.event_log(), f"{caught.value!r} {caught.value}"):
        assert "servicebus" in text
        assert CANARY not in text
    assert CANARY in pair.file.read_text(), "the executors read the canary"
