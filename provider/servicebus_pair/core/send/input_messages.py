"""Input of a send: one message, a collection or a stream, converted to AMQP messages with ids."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Collection, Iterable, Iterator
from typing import Any, TypeAlias

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from servicebus_pair.core.model.errors import InvalidMessageError

__all__ = ["InputMessages", "Message", "Messages", "to_amqp_message"]

Message: TypeAlias = ServiceBusMessage | AmqpAnnotatedMessage
Messages: TypeAlias = Message | Iterable[Message] | AsyncIterable[Message]


class InputMessages:
    """The messages of one send, read one at a time.

    :param messages: a message, a collection, or an (asynchronous) iterable.
    :raises InvalidMessageError: ``messages`` is none of these.
    """

    def __init__(self, messages: Messages) -> None:
        self._is_collection = True
        self._iterator: Iterator[Message] = iter(())
        self._stream: AsyncIterator[Message] | None = None
        match messages:
            case ServiceBusMessage() | AmqpAnnotatedMessage():
                self._iterator = iter((messages,))
            case AsyncIterable():
                self._stream = aiter(messages)
            case Iterable():
                self._iterator, self._is_collection = iter(messages), isinstance(messages, Collection)
            case _:
                raise InvalidMessageError(
                    f"messages is {type(messages).__name__}: allowed are a message and an (async) iterable of messages"
                )

    @property
    def is_stream(self) -> bool:
        """True for an asynchronous iterable."""
        return self._stream is not None

    def available(self) -> Iterator[AmqpAnnotatedMessage]:
        """Yield the messages of a collection or iterator; nothing of a stream."""
        return map(to_amqp_message, self._iterator)

    async def stream(self) -> AsyncIterator[AmqpAnnotatedMessage]:
        """Yield the messages of a stream; nothing of a collection or iterator."""
        if self._stream is not None:
            async for message in self._stream:
                yield to_amqp_message(message)

    def remaining(self) -> list[Any]:
        """Return what was not read of a collection; a stream or iterator keeps its position for its owner.

        A collection whose iterator raises keeps what comes after that.
        """
        unread: list[Any] = []
        if self._stream is None and self._is_collection:
            # This is called for the account of a send that ends with an error of its own, perhaps this very one.
            with contextlib.suppress(Exception):
                for each in self._iterator:
                    unread.append(each.raw_amqp_message if isinstance(each, ServiceBusMessage) else each)  # noqa: PERF401 - what came before the error is kept
        return unread


def to_amqp_message(message: Any) -> AmqpAnnotatedMessage:
    """Return the AMQP form of a message; a message without an id gets one.

    :raises InvalidMessageError: not a message.
    """
    match message:
        case ServiceBusMessage():
            amqp = message.raw_amqp_message
        case AmqpAnnotatedMessage():
            amqp = message
        case _:
            raise InvalidMessageError(
                f"a message is {type(message).__name__}: allowed are ServiceBusMessage and AmqpAnnotatedMessage"
            )
    properties = AmqpMessageProperties() if amqp.properties is None else amqp.properties
    if properties.message_id is None:
        properties.message_id = uuid.uuid4().hex
    amqp.properties = properties
    return amqp
