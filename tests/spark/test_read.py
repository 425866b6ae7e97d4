"""The data source reads by peek (PLATFORM section 3): nothing is taken, and offsets say where to go on."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core import EntityHealth, State
from servicebus_pair.core.backlog import backlog_queues
from servicebus_pair.spark.received import SCHEMA
from tests.spark.conftest import CANARY, Pair, Session

LATER = datetime(2040, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)


def read(spark: SparkSession, pair: Pair, **options: str) -> DataFrame:
    return spark.read.format("servicebus").option("credential", pair.reference).options(**options).load()


def send(pair: Pair, queue: str, *messages: Any) -> None:
    with (
        ServiceBusClient.from_connection_string(pair.primary.connection_string) as client,
        client.get_queue_sender(queue) as sender,
    ):
        sender.send_messages(list(messages))


def numbered(count: int, *, first: int = 0, **properties: Any) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(f"body {n}", message_id=f"m-{n}", **properties) for n in range(first, first + count)]


def test_every_field_of_a_message_is_a_column_and_nothing_is_taken(spark: SparkSession, pair: Pair):
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
    assert table.schema == SCHEMA
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
    assert len(pair.held(queue)) == 2


def test_a_read_is_cut_by_offsets_and_has_a_task_for_each_queue(spark: SparkSession, pair: Pair):
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


def test_dead_letters_are_a_sub_queue_that_says_why(spark: SparkSession, pair: Pair):
    queue = pair.fresh_queue()
    send(pair, queue, *numbered(3))
    with (
        ServiceBusClient.from_connection_string(pair.primary.connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
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


def test_named_sessions_are_read_a_task_each(spark: SparkSession, pair: Pair):
    queue = pair.fresh_queue(requires_session=True)
    for session in ("a", "b", "c"):
        send(pair, queue, *numbered(4, session_id=session))
    rows = read(spark, pair, entity=queue, sessionId="a,c").select("sessionId", "messageId").collect()
    assert sorted(rows) == [(session, f"m-{number}") for session in ("a", "c") for number in range(4)]


def test_what_is_read_can_be_written_again_with_its_types(spark: SparkSession, pair: Pair):
    queue, copy = pair.fresh_queue(), pair.fresh_queue()
    properties = {"far": 2**30, "by": "air", "late": 1.5, "own": True}
    send(pair, queue, *numbered(3, application_properties=properties, subject="UA"))
    table = read(spark, pair, entity=queue).select("body", "messageId", "subject", "applicationProperties")
    table.write.format("servicebus").option("credential", pair.reference).option("entity", copy).mode("append").save()
    found = pair.held(copy)
    assert {item.key[1] for item in found} == {"m-0", "m-1", "m-2"}
    assert all(item.content.properties == properties and item.content.subject == "UA" for item in found)


def test_the_backlog_is_read_on_the_secondary(spark: SparkSession, pair: Pair):
    queue = pair.fresh_queue()
    down = EntityHealth(State.FAILED_OVER, time.time(), None, "an operator says so", "drill", time.time() + 60)
    table = spark.range(6).select(F.format_string("body %d", "id").alias("body"))
    writer = table.write.format("servicebus").option("credential", pair.reference).option("entity", queue)
    writer.option("health", json.dumps({queue: down.to_json()})).mode("append").save()
    found = read(spark, pair, entity=",".join(backlog_queues("contoso", 2)), namespace="secondary")
    destination = F.get_json_object("applicationProperties", "$.x-ms-path")
    bodies = found.where((found.namespace == "contoso-dr") & (destination == queue)).select("body").collect()
    assert sorted(bytes(row.body) for row in bodies) == [b"body %d" % number for number in range(6)]


def test_a_wrong_option_is_refused_on_the_driver(spark: SparkSession, pair: Pair):
    with pytest.raises(AnalysisException, match="option startingOffsets names 'delays': what is read is flights"):
        read(spark, pair, entity="flights", startingOffsets='{"delays": 5}').collect()


def test_a_schema_of_ones_own_is_refused(spark: SparkSession, pair: Pair):
    reader = spark.read.format("servicebus").option("credential", pair.reference).option("entity", "flights")
    with pytest.raises(AnalysisException, match="leave it out, the data source has one: struct<namespace:string,"):
        reader.schema("body string").load().collect()


def test_no_secret_is_in_the_plan_the_event_log_or_the_error(session: Session, pair: Pair):
    table = read(session.spark, pair, entity="no-queue-to-read")
    plan = table._jdf.queryExecution().toString()
    with pytest.raises(PySparkException) as caught:
        table.collect()
    assert "EntityNotFoundError" in str(caught.value)
    for text in (plan, session.event_log(), f"{caught.value!r} {caught.value}"):
        assert CANARY not in text
    assert CANARY in pair.file.read_text(), "the canary is what executors read"
