"""Rows become messages: ids that are repeated and never shared, windows of bounded size, lanes that keep order."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from math import inf, nan
from typing import Any, cast

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.errors import InvalidMessageError
from servicebus_pair.core.wire import WireBatch
from servicebus_pair.spark.codec import RowReader
from servicebus_pair.spark.naming import Position
from servicebus_pair.spark.windows import lanes, windows

BODIES = st.lists(st.binary(max_size=8), min_size=1, max_size=40)


def ids(bodies: list[bytes], *, run: str = "r", partition: int = 0, subject: str | None = None) -> list[str]:
    reader = RowReader(Position(run, partition), entity="flights")
    rows = ({"body": body, "messageId": None, "subject": subject} for body in bodies)
    return [message_id(reader.read(row).message) for row in rows]


def message_id(message: AmqpAnnotatedMessage) -> str:
    assert message.properties is not None
    assert isinstance(message.properties.message_id, str)
    return message.properties.message_id


@given(BODIES, st.text(min_size=1, max_size=300), st.integers(0, 2**31))
def test_ids_that_are_made_are_repeated_differ_and_fit_the_service(bodies: list[bytes], run: str, partition: int):
    made = ids(bodies, run=run, partition=partition)
    assert made == ids(bodies, run=run, partition=partition)
    assert len(set(made)) == len(bodies)
    assert all(len(made_id) <= 128 for made_id in made)
    assert not set(made) & set(ids(bodies, run=run + "x", partition=partition))
    assert not set(made) & set(ids(bodies, run=run, partition=partition + 1))


@given(BODIES, st.randoms())
def test_rows_that_come_in_another_order_never_get_the_id_of_another_row(bodies: list[bytes], random: object):
    other = list(bodies)
    random.shuffle(other)  # type: ignore[attr-defined]
    by_id = dict(zip(ids(bodies), bodies, strict=True))
    for made, body in zip(ids(other), other, strict=True):
        assert by_id.get(made, body) == body


def test_rows_that_differ_in_any_column_differ_in_their_ids():
    assert ids([b"x"], subject="UA") != ids([b"x"], subject="B6")


def test_an_id_that_is_given_stands():
    row = {"body": "x", "messageId": "mine", "entity": "delays", "partitionKey": "p"}
    read = RowReader(Position("r", 0), entity="flights").read(row)
    assert (message_id(read.message), read.entity, read.key, read.size) == ("mine", "delays", "p", 1)


def test_properties_take_their_types_from_json_and_nulls_are_none():
    given = {"origin": "EWR", "far": 5, "late": 2.0, "own": False, "absent": None}
    read = RowReader(Position("r", 0), entity="flights").read({"body": "x", "applicationProperties": json.dumps(given)})
    found = read.message.application_properties
    assert found is not None
    assert found == {"origin": "EWR", "far": {"TYPE": "LONG", "VALUE": 5}, "late": 2.0, "own": False}
    assert isinstance(found["late"], float)


TEXTS = st.none() | st.text(max_size=300)
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  the strategy adds the time zone
ROWS = st.fixed_dictionaries(
    {"body": st.text(max_size=300) | st.binary(max_size=300), "messageId": st.text(min_size=1, max_size=128)},
    optional={
        **dict.fromkeys(
            ("subject", "correlationId", "contentType", "replyTo", "to"), st.none() | st.text(max_size=300)
        ),
        **dict.fromkeys(("sessionId", "partitionKey"), st.sampled_from((None, "s"))),
        "timeToLive": st.none() | st.integers(1, 10**6),
        "scheduledEnqueueTime": st.none() | st.datetimes(EPOCH, timezones=st.just(UTC)),
        "applicationProperties": st.none()
        | st.lists(st.tuples(st.text(max_size=9), st.text(max_size=300)), max_size=3),
    },
)


@given(ROWS)
def test_a_message_has_the_bytes_that_the_sdk_gives_it(row: dict[str, Any]):
    life = row.get("timeToLive")
    expected = ServiceBusMessage(
        row["body"],
        message_id=row["messageId"],
        session_id=row.get("sessionId"),
        subject=row.get("subject"),
        correlation_id=row.get("correlationId"),
        content_type=row.get("contentType"),
        reply_to=row.get("replyTo"),
        to=row.get("to"),
        partition_key=row.get("partitionKey"),
        time_to_live=None if life is None else timedelta(seconds=life),
        scheduled_enqueue_time_utc=row.get("scheduledEnqueueTime"),
        application_properties=cast("Any", dict(row.get("applicationProperties") or ()) or None),
    )
    made = RowReader(Position("r", 0), entity="flights").read(row).message
    assert encoded(made) == encoded(expected.raw_amqp_message)


def encoded(message: AmqpAnnotatedMessage) -> bytes:
    """Encode a message as the SDK does, but for the time of its making, which is now."""
    form = PyamqpTransport.to_outgoing_amqp_message(message)
    if form.properties is not None:
        form = form._replace(properties=form.properties._replace(creation_time=None, absolute_expiry_time=None))
    output = bytearray()
    encode_payload(output, form)
    return bytes(output)


def test_a_time_to_live_is_of_any_numeric_type_and_up_to_what_amqp_has():
    for given_life in (90, 90.0, Decimal("90.00"), 4_294_967):
        read = RowReader(Position("r", 0), entity="flights").read({"body": "x", "timeToLive": given_life})
        assert read.message.header is not None
        assert read.message.header.time_to_live == 1000 * given_life
        WireBatch(10_000).try_add(read.message)


WRONG: dict[str, dict[str, Any]] = {
    "column body is null: it is required": {"body": None},
    "column entity is ' ': it must name a queue or topic": {"entity": " "},
    "column timeToLive is 0: it must be whole seconds from 1": {"timeToLive": 0},
    "column messageId has 129 characters: at most 128 are allowed": {"messageId": "x" * 129},
    "column sessionId has 130 characters: at most 128 are allowed": {"sessionId": "x" * 130},
    "column partitionKey is 'p': beside session 's' it must be that": {"sessionId": "s", "partitionKey": "p"},
    "column timeToLive is 1.5: it must be whole seconds from 1": {"timeToLive": 1.5},
    "column timeToLive is nan: it must be whole seconds from 1": {"timeToLive": nan},
    "column timeToLive is inf: it must be whole seconds from 1": {"timeToLive": inf},
    "column timeToLive is 4294968: it must be whole seconds from 1 to 4294967": {"timeToLive": 4294968},
    "column messageId is empty: it must be an id, or null": {"messageId": ""},
    "column applicationProperties is not JSON": {"applicationProperties": "{"},
    "column applicationProperties is not a JSON object": {"applicationProperties": "[1]"},
    "column applicationProperties: a is a list: allowed are string,": {"applicationProperties": '{"a": [1]}'},
    f"column applicationProperties: a is {2**63}: a whole number has 64 bits": {
        "applicationProperties": f'{{"a": {2**63}}}'
    },
}


@pytest.mark.parametrize("says", WRONG)
def test_a_row_that_cannot_be_a_message_is_named_by_its_number_and_column(says: str):
    reader = RowReader(Position("r", 3), entity="flights")
    reader.read({"body": "fine"})
    with pytest.raises(InvalidMessageError) as caught:
        reader.read({"body": "x"} | WRONG[says])
    assert str(caught.value).startswith("row 1 of partition 3 cannot be a message: ")
    assert says in str(caught.value)


@given(st.lists(st.integers(0, 100)), st.integers(1, 20), st.integers(1, 300))
def test_windows_cover_every_row_once_and_keep_to_both_limits(sizes: list[int], rows: int, most: int):
    cut = list(windows(sizes, rows=rows, most_bytes=most))
    assert [number for window in cut for number in window] == list(range(len(sizes)))
    for window in cut:
        assert len(window) <= rows
        assert len(window) == 1 or sum(sizes[number] for number in window) <= most


KEYS = st.lists(st.none() | st.sampled_from("abcdef"), min_size=1, max_size=200)


@given(KEYS, st.integers(0, 100_000), st.integers(1, 8))
def test_lanes_hold_every_row_once_and_keep_the_order_of_each_key(keys: list[str | None], size: int, most: int):
    spread = lanes(keys, [size] * len(keys), most=most)
    assert sorted(number for lane in spread for number in lane) == list(range(len(keys)))
    assert 1 <= len(spread) <= most
    assert all(lane == sorted(lane) for lane in spread)
    for key in set(keys) - {None}:
        assert sum(any(keys[number] == key for number in lane) for lane in spread) == 1


def test_few_bytes_take_one_lane():
    assert lanes([None] * 100, [100] * 100, most=8) == [list(range(100))]
