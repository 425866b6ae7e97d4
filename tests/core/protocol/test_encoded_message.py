"""Single fields of an encoded message are read as the SDK's decoder reads them."""

from __future__ import annotations

import uuid

import pytest
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from hypothesis import given

from servicebus_pair.core.protocol.amqp_message import Properties
from servicebus_pair.core.protocol.amqp_sections import (
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SYMBOL,
    binary,
    join_list,
    join_map,
    section,
    text,
)
from servicebus_pair.core.protocol.encoded_message import batch_prefix, broker_value, message_id_of
from servicebus_pair.core.protocol.typed_values import amqp_typed
from servicebus_pair.core.sdk._private.message_encoding import Message, envelope
from servicebus_pair.core.sdk.messages import from_sdk
from tests.core.support.encoding import encode
from tests.core.support.message_strategies import messages
from tests.examples import examples

NAME = "x-opt-sequence-number"
NAMED_7 = join_map([text(NAME, constructor=SYMBOL), b"\x55\x07"])
BODY = b"\x00\x53\x75\xa0\x01x"


@pytest.mark.parametrize(
    ("kind", "number"),
    [
        *(("LONG", number) for number in (7, -1, 2**40)),
        ("INT", 2**30),
        *(("ULONG", number) for number in (0, 200, 2**63)),
        ("TIMESTAMP", 1_357_000_000_000),
    ],
)
def test_a_number_of_the_broker_is_read_in_each_form(kind: str, number: int) -> None:
    for others in ({}, {"x-opt-partition-key": "key"}):
        data = encode(AmqpAnnotatedMessage(data_body=b"x", annotations={**others, NAME: amqp_typed(kind, number)}))
        assert broker_value(data, NAME) == number
        assert broker_value(data, "x-opt-other") is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        BODY,
        b"\x00\x54",
        section(HEADER, join_list([])) + BODY,
        section(MESSAGE_ANNOTATIONS, join_map([text(NAME, constructor=SYMBOL), text("7")])) + BODY,
        section(MESSAGE_ANNOTATIONS, join_map([text(NAME, constructor=SYMBOL), b"\x81\x00"])),
        section(MESSAGE_ANNOTATIONS, b"\xc1\xff"),
        # Nor is what is in another section, or in what only looks like one.
        *(section(kind, NAMED_7) + BODY for kind in (HEADER, HEADER + 1, PROPERTIES, PROPERTIES + 1)),
        *(prefix + section(MESSAGE_ANNOTATIONS, NAMED_7)[2:] + BODY for prefix in (b"\x00\x52", b"\x00\x54")),
        # What comes behind a body is not searched, however long the body is.
        *(section(0x75, binary(b"x" * count)) + section(MESSAGE_ANNOTATIONS, NAMED_7) for count in range(12)),
    ],
)
def test_a_number_that_is_missing_or_unreadable_is_none(data: bytes) -> None:
    assert broker_value(data, NAME) is None


ID = uuid.UUID(int=5)


@pytest.mark.parametrize(
    ("given_id", "read"),
    [
        ("m1", "m1"),
        ("m" * 300, "m" * 300),
        (b"m1", "m1"),
        (b"\xff", "\\xff"),
        (ID, str(ID)),
        (0, "0"),
        (7, "7"),
        (2**60, str(2**60)),
        (None, None),
    ],
)
def test_a_message_id_is_read_as_text(given_id: object, read: str | None) -> None:
    properties = AmqpMessageProperties(message_id=given_id, subject="s")  # type: ignore[arg-type]
    message = AmqpAnnotatedMessage(data_body=b"x", properties=properties, header=None)
    assert message_id_of(encode(message)) == read


@pytest.mark.parametrize("data", [b"", BODY, b"\x00\x53\x73\xc0\x09", b"\x00\x53"])
def test_a_message_without_a_readable_id_has_none(data: bytes) -> None:
    assert message_id_of(data) is None


@examples(120)
@given(message=messages())
def test_a_batch_begins_as_the_sdk_begins_it(message: AmqpAnnotatedMessage) -> None:
    own = from_sdk(message)
    properties = Properties() if own.properties is None else own.properties
    annotations = own.annotations or {}
    expected = bytearray()
    encode_payload(
        expected,
        Message(
            *envelope(
                [],
                message_id=properties.message_id or None,
                session_id=properties.group_id or None,
                partition_key=annotations.get("x-opt-partition-key"),
            )
        ),
    )
    first = encode(message)
    prefix = batch_prefix(first)
    if properties.message_id in ("", b"", 0) or properties.group_id == "":
        return  # the SDK leaves out what is empty
    assert prefix == bytes(expected)


def test_a_batch_begins_with_the_partition_key_alone_of_all_annotations() -> None:
    key = [text("x-opt-partition-key", constructor=SYMBOL), text("k")]
    others = [text(name, constructor=SYMBOL) for name in ("a", "x-opt-partition-kez", "x-opt-via-partition-key")]
    items = [item for name in others for item in (name, text("v"))]
    data = section(MESSAGE_ANNOTATIONS, join_map([*items, *key, *items])) + BODY
    assert batch_prefix(data) == section(MESSAGE_ANNOTATIONS, join_map(key))


@pytest.mark.parametrize("before", range(12))
def test_sections_are_read_up_to_the_body_however_long_they_are(before: int) -> None:
    header = section(HEADER, join_list([b"\x40"] * before))
    annotations = section(MESSAGE_ANNOTATIONS, NAMED_7)
    properties = section(PROPERTIES, join_list([text("m1")]))
    for body in (BODY, b"\x00\x53\x77\x01", b""):
        assert broker_value(header + annotations + body, NAME) == 7
        assert message_id_of(header + annotations + properties + body) == "m1"
        assert message_id_of(header + body + properties) == (None if body else "m1")
