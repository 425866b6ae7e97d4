"""A received message says what the broker knows of it, and decodes its sections once, on demand."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessageState, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.protocol.amqp_message import body_digest
from servicebus_pair.core.protocol.message_outline import MessageOutline
from servicebus_pair.core.sdk.messages import from_sdk
from servicebus_pair.core.sdk.received_message import MessageState, OutlinedMessage, ReceivedMessage
from servicebus_pair.core.sdk.relay.delivery import RelayDelivery
from tests.core.support.encoding import decode, encode
from tests.core.support.message_strategies import WHOLE

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def test_sections_are_decoded_once() -> None:
    received = ReceivedMessage(SimpleNamespace(raw_amqp_message=decode(encode(WHOLE))))  # type: ignore[arg-type]
    assert received.amqp is received.amqp
    assert received.amqp.body == [b"one", b"two"]
    assert received.decode_error is None


def test_a_message_that_could_not_be_decoded_says_why_and_has_no_number() -> None:
    inner = SimpleNamespace(decode_error="ValueError: bad decimal")
    for number in (None, "1", b"1", 1.5):
        received = ReceivedMessage(SimpleNamespace(_message=inner, sequence_number=number))  # type: ignore[arg-type]
        assert (received.decode_error, received.sequence_number) == ("ValueError: bad decimal", 0)


@pytest.mark.parametrize("state", ServiceBusMessageState)
def test_every_state_of_the_sdk_has_a_name(state: ServiceBusMessageState) -> None:
    received = ReceivedMessage(SimpleNamespace(state=state))  # type: ignore[arg-type]
    assert received.state is MessageState[state.name]


def test_what_the_broker_adds_is_passed_on() -> None:
    fields: dict[str, Any] = {
        "sequence_number": 7,
        "enqueued_sequence_number": 5,
        "delivery_count": 2,
        "partition_key": "k",
        "dead_letter_reason": "r",
        "dead_letter_error_description": "d",
        "dead_letter_source": "q",
        "message_id": "m",
        "session_id": "s",
        "content_type": "t",
    }
    times = {"enqueued_time": NOON, "scheduled_enqueue_time": NOON, "locked_until": NOON}
    theirs: Any = SimpleNamespace(**fields, **{f"{name}_utc": value for name, value in times.items()})
    received = ReceivedMessage(theirs)
    assert {name: getattr(received, name) for name in fields | times} == fields | times


@pytest.mark.parametrize("lie", [b"x", 2**63 - 1, -(2**63), 1e300, [], {}])
def test_what_the_broker_says_that_is_no_time_or_state_is_as_good_as_nothing(lie: Any) -> None:
    names = (b"x-opt-enqueued-time", b"x-opt-scheduled-enqueue-time", b"x-opt-locked-until", b"x-opt-message-state")
    inner = SimpleNamespace(annotations=dict.fromkeys(names, lie))
    theirs = ServiceBusReceivedMessage.__new__(ServiceBusReceivedMessage)
    receiver = SimpleNamespace(session=None)
    vars(theirs).update(_raw_amqp_message=inner, _settled=False, _receiver=receiver, _expiry=None)
    received = ReceivedMessage(theirs)
    assert (received.enqueued_time, received.scheduled_enqueue_time, received.locked_until) == (None, None, None)
    assert received.state is MessageState.ACTIVE
    assert RelayDelivery(b"", delivery_id=1, receiver=None, lock_ends=1e300).locked_until is None


@pytest.mark.parametrize(("number", "state"), list(enumerate(MessageState)))
def test_an_outlined_message_says_what_its_outline_does(number: int, state: MessageState) -> None:
    outlined = OutlinedMessage(MessageOutline(7, number, "m", "s", "text/plain", "flights", "digest"))
    assert (outlined.sequence_number, outlined.state) == (7, state)
    assert (outlined.message_id, outlined.session_id, outlined.content_type) == ("m", "s", "text/plain")
    assert (outlined.destination, outlined.digest) == ("flights", "digest")


@pytest.mark.parametrize(
    ("properties", "destination"),
    [
        ({b"x-ms-path": b"flights"}, "flights"),
        ({"x-ms-path": "flights"}, "flights"),
        ({"x-ms-path": 5}, ""),
        ({"x-ms-path": b"\xff"}, ""),
        (None, ""),
    ],
)
def test_the_destination_is_what_a_backlog_message_names_as_text(properties: Any, destination: str) -> None:
    message = AmqpAnnotatedMessage(data_body=b"x", application_properties=properties)
    received = ReceivedMessage(SimpleNamespace(raw_amqp_message=message))  # type: ignore[arg-type]
    assert received.destination == destination
    assert received.digest == body_digest(from_sdk(message))
