"""Taking messages from the caller: one, many, or a stream, in their AMQP form and with an id."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterable, AsyncIterator, Collection, Iterable, Iterator
from typing import Any, TypeAlias

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from servicebus_pair.core.errors import InvalidMessageError

__all__ = ["Intake", "Message", "Messages", "outgoing"]

Message: TypeAlias = ServiceBusMessage | AmqpAnnotatedMessage
Messages: TypeAlias = Message | Iterable[Message] | AsyncIterable[Message]


class Intake:
    """The messages of one send, taken one by one.

    :param messages: a message, a collection, or an (asynchronous) iterable.
    :raises InvalidMessageError: none of these.
    """

    def __init__(self, messages: Messages) -> None:
        self._owned = True
        self._rows: Iterator[Message] = iter(())
        self._stream: AsyncIterator[Message] | None = None
        match messages:
            case ServiceBusMessage() | AmqpAnnotatedMessage():
                self._rows = iter((messages,))
            case AsyncIterable():
                self._stream = aiter(messages)
            case Iterable():
                self._rows, self._owned = iter(messages), isinstance(messages, Collection)
            case _:
                raise InvalidMessageError(
                    f"messages is {type(messages).__name__}: allowed are a message and an (async) iterable of messages"
                )

    @property
    def is_stream(self) -> bool:
        """True when messages must be waited for."""
        return self._stream is not None

    def rows(self) -> Iterator[AmqpAnnotatedMessage]:
        """Take what can be had without waiting; nothing of a stream."""
        return map(outgoing, self._rows)

    async def stream(self) -> AsyncIterator[AmqpAnnotatedMessage]:
        """Take what must be waited for; nothing of a collection or an iterator."""
        if self._stream is not None:
            async for message in self._stream:
                yield outgoing(message)

    def rest(self) -> list[Any]:
        """Answer what was not taken of a collection; a stream or iterator stays where it stands, with its owner."""
        if self._stream is not None or not self._owned:
            return []
        return [each.raw_amqp_message if isinstance(each, ServiceBusMessage) else each for each in self._rows]


def outgoing(message: Any) -> AmqpAnnotatedMessage:
    """Answer the AMQP form of a message, with an id: one is given to a message that has none.

    :raises InvalidMessageError: not a message.
    """
    match message:
        case ServiceBusMessage():
            form = message.raw_amqp_message
        case AmqpAnnotatedMessage():
            form = message
        case _:
            raise InvalidMessageError(
                f"a message is {type(message).__name__}: allowed are ServiceBusMessage and AmqpAnnotatedMessage"
            )
    properties = AmqpMessageProperties() if form.properties is None else form.properties
    if properties.message_id is None:
        properties.message_id = uuid.uuid4().hex
    form.properties = properties
    return form
