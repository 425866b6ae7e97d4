"""SPEC section 4, the table of travelling properties: out to the backlog and back, over the SDK's own wire form."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from hypothesis import example, given, settings

from servicebus_pair.core.amqp_types import typed
from servicebus_pair.core.envelope import Unwrapped, unwrap, wrap
from servicebus_pair.core.errors import InvalidMessageError
from tests.core.any_message import LASTING, WHOLE, messages
from tests.core.wire import received, sent

ENTITY = "flights"


def through_the_backlog(message: AmqpAnnotatedMessage) -> Unwrapped:
    """Divert, receive from the backlog queue, translate back."""
    return unwrap(received(sent(wrap(message, entity=ENTITY))))


def copy_in_backlog(message: ServiceBusMessage) -> AmqpAnnotatedMessage:
    """What lies in the backlog queue, as a receiver sees it."""
    return received(sent(wrap(message.raw_amqp_message, entity=ENTITY)))


@settings(max_examples=150)
@example(message=WHOLE)
@example(message=LASTING)
@example(message=AmqpAnnotatedMessage(value_body=typed("LONG", 7)))
@example(message=AmqpAnnotatedMessage(sequence_body=[[typed("LONG", 7), "a"], [typed("SYMBOL", "b")]]))
@example(message=AmqpAnnotatedMessage(value_body=Decimal(0)))
@given(message=messages())
def test_section_4_a_message_leaves_the_backlog_byte_for_byte_as_it_would_have_been_sent_to_its_entity(
    message: AmqpAnnotatedMessage,
) -> None:
    back = through_the_backlog(message)
    assert back.entity == ENTITY
    assert sent(back.message) == sent(message)


@settings(max_examples=50)
@given(message=messages())
def test_section_4_a_message_may_be_diverted_again_and_again_without_changing(message: AmqpAnnotatedMessage) -> None:
    once = through_the_backlog(message).message
    twice = through_the_backlog(once).message
    assert sent(twice) == sent(message)


@settings(max_examples=50)
@given(message=messages())
def test_section_4_diverting_does_not_change_the_message_of_the_caller(message: AmqpAnnotatedMessage) -> None:
    before = sent(message)
    wrap(message, entity=ENTITY)
    assert sent(message) == before


def test_section_4_path_session_time_to_live_and_schedule_travel_as_application_properties_and_are_cleared() -> None:
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


def test_section_4_what_travels_has_on_the_wire_the_types_that_the_dotnet_original_reads() -> None:
    """A receiver of the SDK for Python sees no difference between a timestamp and a long."""
    at = datetime(2013, 1, 31, 23, 59, 58, 250_000, tzinfo=UTC)
    message = ServiceBusMessage(b"", time_to_live=timedelta(days=1), scheduled_enqueue_time_utc=at, session_id="a")
    wire = bytes(sent(wrap(message.raw_amqp_message, entity=ENTITY)))
    timestamp, string = b"\x83", b"\xa1"
    milliseconds = int(at.timestamp() * 1000).to_bytes(8)
    assert b"x-ms-scheduledenqueuetimeutc" + timestamp + milliseconds in wire
    assert b"x-ms-timetolive" + string + b"\x03P1D" in wire
    assert b"x-ms-sessionid" + string + b"\x01a" in wire
    assert b"x-ms-path" + string + b"\x07flights" in wire


def test_section_4_a_message_with_nothing_to_translate_gains_its_path_only() -> None:
    copy = copy_in_backlog(ServiceBusMessage("plain", message_id="1"))
    assert copy.application_properties == {b"x-ms-path": b"flights"}
    assert copy.annotations is None
    assert list(copy.body) == [b"plain"]


def test_section_4_a_time_to_live_of_zero_does_not_expire_in_the_backlog() -> None:
    copy = copy_in_backlog(ServiceBusMessage("now or never", time_to_live=timedelta(0)))
    assert copy.header is None
    restored = unwrap(copy).message
    assert restored.header is not None
    assert restored.header.time_to_live == 0


def test_section_4_an_expiry_time_which_the_service_writes_by_itself_stays_out_of_the_backlog_queue() -> None:
    message = AmqpAnnotatedMessage(data_body=b"", properties={"absolute_expiry_time": 1, "message_id": "1"})
    copy = wrap(message, entity=ENTITY)
    assert copy.properties is not None
    assert copy.properties.absolute_expiry_time is None


def test_section_4_annotations_of_one_delivery_stay_out_of_another() -> None:
    message = AmqpAnnotatedMessage(data_body=b"", delivery_annotations={"x-opt-lock-token": "1"})
    assert wrap(message, entity=ENTITY).delivery_annotations is None


def test_section_4_what_the_broker_adds_to_a_delivered_message_is_not_sent_on() -> None:
    wire = received(
        sent(
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
    assert sent(unwrap(wire).message) == sent(expected)


def test_section_4_application_properties_named_like_an_alias_belong_to_the_message() -> None:
    own: dict[Any, Any] = {
        "x-ms-path": "mine",
        "x-ms-timetolive": 5,
        "x-servicebus-pair-types": "{",
        "x-servicebus-pair-own:a": True,
    }
    message = ServiceBusMessage("x", session_id="s", application_properties=own)
    back = through_the_backlog(message.raw_amqp_message)
    assert back.entity == ENTITY
    assert back.message.application_properties == own


def test_section_4_properties_named_like_the_parts_of_a_typed_value_are_just_properties() -> None:
    own: Any = {"TYPE": "DECIMAL128", "VALUE": "5"}
    message = ServiceBusMessage(b"", message_id="m", application_properties=own).raw_amqp_message
    back = unwrap(received(sent(wrap(message, entity="flights")))).message
    assert back.application_properties == own


@pytest.mark.parametrize(
    ("section", "named"),
    [
        ({"properties": {"group_id": b"\xff"}}, "session id"),
        ({"header": {"time_to_live": -1}}, "time to live is -1 ms"),
        ({"header": {"time_to_live": 10**18}}, "time to live"),
    ],
)
def test_section_4_a_message_that_cannot_be_translated_is_refused_by_name(section: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidMessageError, match=named):
        wrap(AmqpAnnotatedMessage(data_body=b"x", **section), entity=ENTITY)
