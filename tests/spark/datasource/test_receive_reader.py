"""A stream that receives: nothing is lost and nothing is read by two batches, wherever the driver dies.

Spark's part is played here, in the order of ``MicroBatchExecution``: offset, batch, commit, next offset. The kills of
real processes are in ``scenarios/test_receive_stream_kill.py``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from pyarrow import compute
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructField, StructType

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.sdk.receive_link import ReceiveLink
from servicebus_pair.spark.base.redaction import SparkTaskError
from servicebus_pair.spark.base.spark_version import ReadLimit
from servicebus_pair.spark.datasource import receive_reader
from servicebus_pair.spark.datasource.dead_letter_writer import DeadLetterOptions, DeadLetterWriter
from servicebus_pair.spark.datasource.options import ReadOptions
from servicebus_pair.spark.datasource.receive_reader import ServiceBusReceiveReader
from tests.spark.conftest import Pair
from tests.spark.support.messages import numbered, receiver_of, send

pytestmark = pytest.mark.skipif(ReadLimit is None, reason="Spark 4.0 and 4.1 read no streams")
SESSIONS = 4
LOCK = 5


@pytest.fixture(autouse=True)
def short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an empty queue be found empty at once."""
    monkeypatch.setattr(receive_reader, "_WAIT", 0.05)


class Killed(Exception):  # noqa: N818  not an error
    """The driver died."""


class Query:
    """A query whose sink is idempotent by batch. What Spark stores in its checkpoint outlives a killed driver."""

    def __init__(self, pair: Pair, queue: str, **options: Any) -> None:
        given = {"credential": pair.reference, "entity": queue, "mode": "receive", "maxMessagesPerTrigger": "7"}
        self.options = ReadOptions.parse(given | options, streaming=True)
        self.offsets: list[dict[str, Any]] = []
        self.commits: set[int] = set()
        self.sink: dict[int, list[dict[str, Any]]] = {}
        self.steps_left = 0

    def step(self) -> None:
        self.steps_left -= 1
        if self.steps_left == 0:
            raise Killed

    def run(self, *, steps: int = -1) -> None:
        """Run until there is nothing new, or the driver is killed after so many steps."""
        self.steps_left = steps
        reader = ServiceBusReceiveReader(self.options)
        try:
            self._run(reader)
        finally:
            reader.stop()

    def _run(self, reader: ServiceBusReceiveReader) -> None:
        if self.offsets and len(self.offsets) - 1 not in self.commits:
            self._batch(reader)
        while True:
            start = self.offsets[-1] if self.offsets else reader.initialOffset()
            end = reader.latestOffset(start, reader.getDefaultReadLimit())
            self.step()
            if end == start:
                return
            self.offsets.append(json.loads(json.dumps(end)))
            self.step()
            self._batch(reader)

    def _batch(self, reader: ServiceBusReceiveReader) -> None:
        number = len(self.offsets) - 1
        start = self.offsets[number - 1] if number else reader.initialOffset()
        partitions = reader.partitions(start, self.offsets[number])
        rows = [row for each in partitions for page in reader.read(each) for row in page.to_pylist()]
        self.step()
        self.sink[number] = rows
        self.step()
        self.commits.add(number)
        self.step()

    def landed(self) -> list[dict[str, Any]]:
        return [row for number in sorted(self.sink) for row in self.sink[number]]


def session_contents(pair: Pair, queue: str) -> Iterator[Any]:
    with ServiceBusClient.from_connection_string(pair.primary.connection_string) as client:
        for number in range(SESSIONS):
            with client.get_queue_receiver(queue, session_id=f"s{number}") as receiver:
                yield from receiver.peek_messages(100)


def die_between_calls(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make each request that claims or removes messages begin and end with a step."""

    def dying(call: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def die(link: ReceiveLink, *values: Any, **options: Any) -> Any:
            query.step()
            result = await call(link, *values, **options)
            query.step()
            return result

        return die

    for name in ("defer", "remove_deferred"):
        monkeypatch.setattr(ReceiveLink, name, dying(getattr(ReceiveLink, name)))


@pytest.mark.parametrize("sessions", [False, True], ids=["queue", "sessions"])
def test_nothing_is_lost_or_read_twice_wherever_the_driver_dies(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, sessions: bool
) -> None:
    queue = pair.fresh_queue(requires_session=sessions, lock_duration=timedelta(seconds=LOCK))
    total = 24 if sessions else 45
    sent = [
        ServiceBusMessage(f"body {n}", message_id=f"m-{n}", session_id=f"s{n % SESSIONS}" if sessions else None)
        for n in range(total)
    ]
    send(pair, queue, *sent)
    query = Query(pair, queue, tasks="2", **({"requiresSession": "true"} if sessions else {}))

    die_between_calls(query, monkeypatch)
    kills = 0
    while True:
        try:
            # Beyond eleven steps a batch is done, so every step of a batch is the last one of some driver.
            query.run(steps=2 + kills % 11)
        except (Killed, SparkTaskError):
            if query.steps_left > 0:
                raise  # nobody killed it
            kills += 1
        else:
            break
    assert kills > 6
    query.steps_left = -1
    # What a driver had received, but not yet claimed, is locked for a while.
    deadline = time.monotonic() + 5 * LOCK
    while len(query.landed()) < total and time.monotonic() < deadline:
        query.run()
    landed = query.landed()
    assert sorted(row["messageId"] for row in landed) == sorted(f"m-{n}" for n in range(total))
    if sessions:
        for session in range(SESSIONS):
            numbers = [int(row["messageId"][2:]) for row in landed if row["sessionId"] == f"s{session}"]
            assert numbers == sorted(numbers)
    left = pair.peek(queue) if not sessions else [*session_contents(pair, queue)]
    assert left == [], "all were removed after they had landed"


def test_batch_is_read_again_after_a_restart_until_it_has_landed(pair: Pair) -> None:
    queue = pair.fresh_queue()
    send(pair, queue, *numbered(10))
    query = Query(pair, queue, tasks="3")
    with pytest.raises(Killed):
        query.run(steps=3)
    assert (len(query.offsets), query.sink) == (1, {}), "claimed and read, but it did not land"
    query.run()
    assert [row["messageId"] for row in query.sink[0]] == [f"m-{n}" for n in range(7)]
    assert {row["state"] for row in query.sink[0]} == {"deferred"}
    assert [len(query.sink[number]) for number in sorted(query.sink)] == [7, 3]
    assert pair.peek(queue) == []


def test_a_claimed_message_that_is_gone_fails_the_batch_unless_loss_is_allowed(pair: Pair) -> None:
    queue = pair.fresh_queue()
    send(pair, queue, *numbered(3))
    query = Query(pair, queue)
    with pytest.raises(Killed):
        query.run(steps=2)
    with receiver_of(pair, queue) as receiver:
        (message,) = receiver.receive_deferred_messages(2)
        receiver.complete_message(message)
    with pytest.raises(SparkTaskError, match=f"1 claimed messages of {queue} are gone, such as 2"):
        query.run()
    query.options = Query(pair, queue, failOnDataLoss="false").options
    query.run()
    assert [row["messageId"] for row in query.landed()] == ["m-0", "m-2"]


@pytest.mark.parametrize("sessions", [False, True], ids=["queue", "sessions"])
def test_rejected_messages_are_dead_lettered_and_a_repeated_batch_goes_on_without_them(
    pair: Pair, sessions: bool
) -> None:
    queue = pair.fresh_queue(requires_session=sessions)
    send(
        pair,
        queue,
        *(
            ServiceBusMessage(f"{n}", message_id=f"m-{n}", session_id=f"s{n % 2}" if sessions else None)
            for n in range(7)
        ),
    )
    query = Query(pair, queue, **({"requiresSession": "true"} if sessions else {}))
    with pytest.raises(Killed):
        query.run(steps=2)
    partitions = ServiceBusReceiveReader(query.options).partitions({}, query.offsets[0])
    pages = [page for each in partitions for page in ServiceBusReceiveReader(query.options).read(each)]
    rejected = pa.Table.from_batches(pages).filter(compute.field("messageId").isin(["m-2", "m-5"]))
    rejected = rejected.drop_columns("deadLetterReason").append_column("deadLetterReason", pa.array(["Invalid"] * 2))
    options = {"credential": pair.reference, "action": "deadLetter"} | ({"requiresSession": "true"} if sessions else {})
    schema = from_arrow_schema(rejected.schema)

    writer = DeadLetterWriter(DeadLetterOptions.parse(options, schema, overwrite=False))
    for moved in (2, 0):  # a task that is repeated moves nothing again
        message = writer.write(iter(rejected.to_batches()))
        writer.commit([message])
        assert getattr(message, "messages", None) == moved
    with (
        ServiceBusClient.from_connection_string(pair.primary.connection_string) as client,
        client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as dead,
    ):
        found = [(each.message_id, each.dead_letter_reason) for each in dead.peek_messages(10)]
    assert sorted(found) == [("m-2", "Invalid"), ("m-5", "Invalid")]

    query.run()
    assert {row["messageId"] for row in query.landed()} == {f"m-{n}" for n in (0, 1, 3, 4, 6)}
    unknown = rejected.set_column(rejected.schema.get_field_index("sequenceNumber"), "sequenceNumber", [[1, 999]])
    with pytest.raises(SparkTaskError, match="are not claimed by a stream that receives, such as 1"):
        writer.commit([writer.write(iter(unknown.to_batches()))])


@pytest.mark.parametrize(
    ("options", "column", "kind", "error"),
    [
        ({"ledger": "/mnt/ledger"}, "sequenceNumber", LongType(), "option ledger is given: it is for sending"),
        ({}, "body", BinaryType(), "column sequenceNumber is missing: write rows of the stream"),
        ({"requiresSession": "true"}, "sequenceNumber", LongType(), "column sessionId is missing"),
        ({}, "sequenceNumber", StringType(), "is string: allowed is the type that a read gives it"),
    ],
)
def test_write_that_cannot_dead_letter_is_refused(
    options: dict[str, str], column: str, kind: DataType, error: str
) -> None:
    given = {"credential": "env:PAIR", "entity": "flights", "action": "deadLetter"} | options
    with pytest.raises(ConfigurationError, match=error):
        DeadLetterOptions.parse(given, StructType([StructField(column, kind)]), overwrite=False)


def test_a_stream_that_receives_waits_for_the_minimum_of_a_batch_and_not_for_ever(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, clock = pair.fresh_queue(), [100.0]
    monkeypatch.setattr(receive_reader, "monotonic", lambda: clock[0])
    query = Query(pair, queue, minMessagesPerTrigger="5", maxTriggerDelay="30")
    reader = ServiceBusReceiveReader(query.options)

    def claimed(start: dict[str, Any], *, sent: int) -> dict[str, Any]:
        send(pair, queue, *numbered(sent))
        return reader.latestOffset(start, reader.getDefaultReadLimit())

    try:
        first = claimed({}, sent=1)
        assert first == {"claims": {queue: {"": "1"}}}, "the first batch does not wait"
        assert claimed(first, sent=3) == first
        clock[0] += 31
        second = claimed(first, sent=1)
        assert second == {"claims": {queue: {"": "2-5"}}}
        assert claimed(second, sent=4) == second
        assert claimed(second, sent=1) == {"claims": {queue: {"": "6-10"}}}
    finally:
        reader.stop()


def test_batch_is_limited_by_bytes_and_progress_says_what_is_behind(pair: Pair) -> None:
    queue = pair.fresh_queue()
    send(pair, queue, *(ServiceBusMessage(b"x" * 1000, message_id=f"m-{n}") for n in range(100)))
    query = Query(pair, queue, maxMessagesPerTrigger="1000", maxBytesPerTrigger="20000")
    reader = ServiceBusReceiveReader(query.options)
    try:
        assert reader.reportLatestOffset() is None
        end = reader.latestOffset({}, reader.getDefaultReadLimit())
        assert end == {"claims": {queue: {"": "1-20"}}}
        assert reader.reportLatestOffset() == {"behind": {queue: 80}, "claimed": 20, "deadLettered": 0}
    finally:
        reader.stop()
