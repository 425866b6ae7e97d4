"""Rows become AMQP messages; an invalid row is named."""

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

from servicebus_pair.core.model.errors import InvalidMessageError
from servicebus_pair.core.sdk.message_batch import EncodedBatch
from servicebus_pair.core.sdk.messages import to_sdk
from servicebus_pair.spark.base.message_ids import MessageIdGenerator
from servicebus_pair.spark.datasource.row_codec import RowEncoder


def test_given_id_is_kept():
    columns = {"body": "x", "messageId": "mine", "entity": "delays", "partitionKey": "p"}
    row = RowEncoder(MessageIdGenerator("r", 0), entity="flights").encode(columns)
    assert row.message.properties is not None
    found = (row.message.properties.message_id, row.entity, row.key, row.size)
    assert found == ("mine", "delays", "p", 1)


def test_properties_have_json_types_and_nulls_are_omitted():
    given = {"origin": "EWR", "far": 5, "late": 2.0, "own": False, "absent": None}
    row = RowEncoder(MessageIdGenerator("r", 0), entity="flights").encode(
        {"body": "x", "applicationProperties": json.dumps(given)}
    )
    found = row.message.application_properties
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
def test_encoded_message_equals_the_sdk_encoding(row: dict[str, Any]):
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
    made = RowEncoder(MessageIdGenerator("r", 0), entity="flights").encode(row).message
    assert encoded(to_sdk(made)) == encoded(expected.raw_amqp_message)


def encoded(message: AmqpAnnotatedMessage) -> bytes:
    """Encode a message as the SDK does, without the creation time."""
    form = PyamqpTransport.to_outgoing_amqp_message(message)
    if form.properties is not None:
        form = form._replace(properties=form.properties._replace(creation_time=None, absolute_expiry_time=None))
    output = bytearray()
    encode_payload(output, form)
    return bytes(output)


def test_time_to_live_accepts_any_numeric_type_up_to_the_amqp_limit():
    for time_to_live in (90, 90.0, Decimal("90.00"), 4_294_967):
        row = RowEncoder(MessageIdGenerator("r", 0), entity="flights").encode({"body": "x", "timeToLive": time_to_live})
        assert row.message.header is not None
        assert row.message.header.time_to_live == 1000 * time_to_live
        EncodedBatch(10_000).try_add(row.message)


INVALID: dict[str, dict[str, Any]] = {
    "column body is null: it is required": {"body": None},
    "column entity is ' ': it must be the path of a queue or topic": {"entity": " "},
    "column entity is 'a\\u202eb': it must have no line ends and other control": {"entity": "a\u202eb"},
    "column timeToLive is 0: it must be whole seconds from 1": {"timeToLive": 0},
    "column messageId has 129 characters: at most 128 are allowed": {"messageId": "x" * 129},
    "column sessionId has 130 characters: at most 128 are allowed": {"sessionId": "x" * 130},
    "column partitionKey is 'p': it must equal sessionId 's'": {"sessionId": "s", "partitionKey": "p"},
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


@pytest.mark.parametrize("error", INVALID)
def test_invalid_row_is_named_by_number_and_column(error: str):
    encoder = RowEncoder(MessageIdGenerator("r", 3), entity="flights")
    encoder.encode({"body": "fine"})
    with pytest.raises(InvalidMessageError) as caught:
        encoder.encode({"body": "x"} | INVALID[error])
    assert str(caught.value).startswith("row 1 of partition 3 cannot be a message: ")
    assert error in str(caught.value)
