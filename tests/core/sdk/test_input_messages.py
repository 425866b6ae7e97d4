"""A send takes a message, a collection or a stream; what it did not read remains (SPEC section 4)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.model.errors import InvalidMessageError
from servicebus_pair.core.sdk.messages import InputMessages, to_amqp_message


def numbered(count: int) -> list[ServiceBusMessage]:
    return [ServiceBusMessage("x", message_id=f"m{n}") for n in range(count)]


ROWS = numbered(3)
AMQP_ROWS = tuple(each.raw_amqp_message for each in numbered(3))


async def stream(count: int) -> AsyncIterator[ServiceBusMessage]:
    for message in numbered(count):
        yield message


@pytest.mark.parametrize(
    ("given", "remaining"),
    [
        (numbered(1)[0], []),
        (numbered(1)[0].raw_amqp_message, []),
        (ROWS, ROWS[1:]),
        (AMQP_ROWS, AMQP_ROWS[1:]),
        (iter(numbered(3)), []),
    ],
    ids=["message", "AMQP message", "list", "tuple of AMQP messages", "iterator"],
)
async def test_section_4_only_the_unread_messages_of_a_collection_remain(given: Any, remaining: Sequence[Any]) -> None:
    messages = InputMessages(given)
    assert next(messages.available()).properties.message_id == "m0"  # type: ignore[union-attr]
    assert (messages.is_stream, [each async for each in messages.stream()]) == (False, [])
    assert all(one is other for one, other in zip(messages.remaining(), remaining, strict=True))


@pytest.mark.parametrize(("given", "unread"), [(ROWS[0], ROWS[:1]), (ROWS, ROWS), (iter(ROWS), [])])
def test_section_4_all_remains_of_what_was_not_read(given: Any, unread: list[Any]) -> None:
    assert InputMessages(given).remaining() == unread


async def test_section_4_a_stream_keeps_its_position() -> None:
    source = stream(3)
    messages = InputMessages(source)
    assert (messages.is_stream, list(messages.available())) == (True, [])
    assert (await anext(messages.stream())).properties.message_id == "m0"  # type: ignore[union-attr]
    assert messages.remaining() == []
    assert [each.message_id async for each in source] == ["m1", "m2"]


@pytest.mark.parametrize("properties", [None, {"subject": "s"}])
def test_section_4_a_message_without_an_id_gets_a_unique_one(properties: Any) -> None:
    first, second = (to_amqp_message(AmqpAnnotatedMessage(data_body=b"x", properties=properties)) for _ in range(2))
    assert first.properties is not None
    assert second.properties is not None
    assert len({first.properties.message_id, second.properties.message_id}) == 2
    assert first.properties.subject == (None if properties is None else "s")
    again = to_amqp_message(first)
    assert again is first


@pytest.mark.parametrize(("given", "named"), [(5, "messages is int"), ([5], "a message is int")])
def test_section_4_other_types_are_refused_by_name(given: Any, named: str) -> None:
    with pytest.raises(InvalidMessageError, match=f"{named}: allowed are"):
        list(InputMessages(given).available())
