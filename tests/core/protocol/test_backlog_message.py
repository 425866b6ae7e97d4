"""Backlog messages: wrapping and unwrapping over the wire format (SPEC section 4)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from hypothesis import example, given

from servicebus_pair.core.model.errors import InvalidMessageError, UndeliverableError
from servicebus_pair.core.protocol.amqp_message import AmqpMessage
from servicebus_pair.core.protocol.backlog_message import RestoredMessage, destination_of, unwrap, wrap
from servicebus_pair.core.protocol.backlog_properties import PATH
from servicebus_pair.core.protocol.typed_values import amqp_typed
from servicebus_pair.core.sdk.messages import from_sdk, to_amqp_message
from tests.core.support.encoding import decode, encode
from tests.core.support.message_strategies import LASTING, WHOLE, messages
from tests.examples import examples

ENTITY = "flights"


def through_the_backlog(message: AmqpMessage) -> RestoredMessage:
    """Wrap, send, receive and unwrap a message."""
    return unwrap(from_sdk(decode(encode(wrap(message, entity=ENTITY)))))


def copy_in_backlog(message: ServiceBusMessage) -> AmqpMessage:
    """Return the backlog message as received."""
    return from_sdk(decode(encode(wrap(to_amqp_message(message), entity=ENTITY))))


@examples(150)
@example(message=WHOLE)
@example(message=LASTING)
@example(message=AmqpAnnotatedMessage(value_body=amqp_typed("LONG", 7)))
@example(message=AmqpAnnotatedMessage(sequence_body=[[amqp_typed("LONG", 7), "a"], [amqp_typed("SYMBOL", "b")]]))
@example(message=AmqpAnnotatedMessage(value_body=Decimal(0)))
@given(message=messages())
def test_wrapped_message_is_restored_byte_for_byte(
    message: AmqpAnnotatedMessage,
) -> None:
    back = through_the_backlog(from_sdk(message))
    assert back.entity == ENTITY
    assert encode(back.message) == encode(message)


@examples(50)
@given(message=messages())
def test_restored_message_can_be_wrapped_again(message: AmqpAnnotatedMessage) -> None:
    once = through_the_backlog(from_sdk(message)).message
    twice = through_the_backlog(once).message
    assert encode(twice) == encode(message)


@examples(50)
@given(message=messages())
def test_wrap_does_not_change_its_argument(message: AmqpAnnotatedMessage) -> None:
    before = encode(message)
    wrap(from_sdk(message), entity=ENTITY)
    assert encode(message) == before


def test_broker_properties_become_application_properties() -> None:
    at = datetime(2013, 1, 31, 23, 59, 58, 250_000, tzinfo=UTC)
    message = ServiceBusMessage(
        b"late",
        session_id="N14228",
        time_to_live=timedelta(days=1, hours=2),
        scheduled_enqueue_time_utc=at,
        partition_key="N14228",
        application_properties={"carrier": "UA"},
    )
    copy = copy_in_backlog(message)
    assert copy.application_properties is not None
    assert copy.header is None
    assert copy.properties is not None
    assert copy.properties.group_id is None
    assert copy.application_properties == {
        b"carrier": b"UA",
        b"x-ms-path": b"flights",
        b"x-ms-sessionid": b"N14228",
        b"x-ms-timetolive": b"P1DT2H",
        b"x-ms-scheduledenqueuetimeutc": int(at.timestamp() * 1000),
    }
    assert copy.annotations == {b"x-opt-partition-key": b"N14228"}


def test_aliases_have_the_amqp_types_of_the_dotnet_sdk() -> None:
    """A receiver of the SDK for Python sees no difference between a timestamp and a long."""
    at = datetime(2013, 1, 31, 23, 59, 58, 250_000, tzinfo=UTC)
    message = ServiceBusMessage(b"", time_to_live=timedelta(days=1), scheduled_enqueue_time_utc=at, session_id="a")
    wire = bytes(encode(wrap(to_amqp_message(message), entity=ENTITY)))
    timestamp, string = b"\x83", b"\xa1"
    milliseconds = int(at.timestamp() * 1000).to_bytes(8)
    assert b"x-ms-scheduledenqueuetimeutc" + timestamp + milliseconds in wire
    assert b"x-ms-timetolive" + string + b"\x03P1D" in wire
    assert b"x-ms-sessionid" + string + b"\x01a" in wire
    assert b"x-ms-path" + string + b"\x07flights" in wire


def test_plain_message_gains_only_its_path() -> None:
    copy = copy_in_backlog(ServiceBusMessage("plain", message_id="1"))
    assert copy.application_properties == {b"x-ms-path": b"flights"}
    assert copy.annotations is None
    assert list(copy.body) == [b"plain"]


def test_zero_time_to_live_does_not_expire_in_the_backlog() -> None:
    copy = copy_in_backlog(ServiceBusMessage("now or never", time_to_live=timedelta(0)))
    assert copy.header is None
    restored = unwrap(copy).message
    assert restored.header is not None
    assert restored.header.time_to_live == 0


def test_expiry_time_and_delivery_annotations_are_not_copied() -> None:
    message = AmqpAnnotatedMessage(
        data_body=b"", properties={"absolute_expiry_time": 1}, delivery_annotations={"x-opt-lock-token": "1"}
    )
    copy = wrap(from_sdk(message), entity=ENTITY)
    assert copy.properties is not None
    assert copy.properties.absolute_expiry_time is None
    assert copy.delivery_annotations is None


def test_values_added_by_the_broker_are_removed() -> None:
    wire = decode(
        encode(
            AmqpAnnotatedMessage(
                data_body=b"x",
                header={"delivery_count": 3, "first_acquirer": False, "durable": True},
                properties={"absolute_expiry_time": 253_402_300_799_999},
                application_properties={"x-ms-path": ENTITY},
                annotations={
                    "x-opt-sequence-number": 7,
                    "x-opt-enqueued-time": 1,
                    "x-opt-locked-until": 2,
                    "x-opt-enqueue-sequence-number": 7,
                    "x-opt-message-state": 0,
                    "x-opt-partition-id": 3,
                    "x-opt-deadletter-source": "q",
                    "x-opt-kept": "yes",
                },
            )
        )
    )
    assert wire.header is not None
    wire.header.time_to_live = 4_294_967_295
    expected = AmqpAnnotatedMessage(data_body=b"x", header={"durable": True}, annotations={"x-opt-kept": "yes"})
    assert encode(unwrap(from_sdk(wire)).message) == encode(expected)


@pytest.mark.parametrize(
    "own",
    [
        {"x-ms-path": "mine", "x-ms-timetolive": 5, "x-servicebus-pair-types": "{", "x-servicebus-pair-own:a": True},
        {"TYPE": "DECIMAL128", "VALUE": "5"},
    ],
    ids=["aliases", "parts of a typed value"],
)
def test_application_properties_with_reserved_names_are_restored(own: dict[Any, Any]) -> None:
    message = ServiceBusMessage("x", session_id="s", application_properties=own)
    back = through_the_backlog(to_amqp_message(message))
    assert back.entity == ENTITY
    assert back.message.application_properties == own


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({"properties": {"group_id": b"\xff"}}, "session id"),
        ({"header": {"time_to_live": -1}}, "time to live is -1 ms"),
        ({"header": {"time_to_live": 10**18}}, "time to live"),
    ],
)
def test_unsupported_message_is_rejected_by_field(section: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidMessageError, match=named):
        wrap(from_sdk(AmqpAnnotatedMessage(data_body=b"x", **section)), entity=ENTITY)


@pytest.mark.parametrize(
    "path",
    [
        "flights/$management",
        "$cbs",
        "flights/$DeadLetterQueue",
        "fl\0ights",
        "flights?x=1",
        "a#b",
        "a@b",
        "a\\b",
        "a\n",
        "a\x85b",
        "a\u202eb",
        "a\u2028b",
        "__type",
        "flights/__classname__",
        "a" * 261,
        "a" * 301,
    ],
    ids=repr,
)
def test_section_6_a_path_that_is_no_entity_can_never_be_delivered(path: str) -> None:
    copied = AmqpMessage([b"x"], application_properties={PATH: path})
    with pytest.raises(UndeliverableError) as caught:
        unwrap(copied)
    assert caught.value.reason == "BadPath"
    assert f" is {path[:300]!r}: it must name an entity" in str(caught.value) or not path
    assert destination_of(copied) is None


@pytest.mark.parametrize("path", ["flights", "a__b", "a/b/c", "a.b-c_d~e", "Ämter", "cost$", "a" * 260])
def test_section_6_other_paths_name_entities(path: str) -> None:
    assert destination_of(AmqpMessage([b"x"], application_properties={PATH: path})) == path
