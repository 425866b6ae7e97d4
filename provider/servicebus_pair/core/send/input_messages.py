"""Input of a send: one message, a collection or a stream, converted to AMQP messages with ids."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterable, AsyncIterator, Collection, Iterable, Iterator
from typing import Any

from servicebus_pair.core.model.errors import InvalidMessageError
from servicebus_pair.core.protocol.amqp_message import AmqpMessage
from servicebus_pair.core.sdk.messages import Message, Messages, is_message, to_amqp_message, to_application


class InputMessages:
    """The messages of one send, read one at a time.

    :param messages: a message, a collection, or an (asynchronous) iterable.
    :raises InvalidMessageError: ``messages`` is none of these.
    """

    def __init__(self, messages: Messages) -> None:
        self._is_collection = True
        self._iterator: Iterator[Message] = iter(())
        self._stream: AsyncIterator[Message] | None = None
        self._not_converted: list[Any] = []
        match messages:
            case _ if is_message(messages):
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

    def available(self) -> Iterator[AmqpMessage]:
        """Yield the messages of a collection or iterator; nothing of a stream.

        :raises InvalidMessageError: an item is no message.
        """
        return map(self._converted, self._iterator)

    async def stream(self) -> AsyncIterator[AmqpMessage]:
        """Yield the messages of a stream; nothing of a collection or iterator.

        :raises InvalidMessageError: an item is no message.
        """
        if self._stream is not None:
            async for message in self._stream:
                yield self._converted(message)

    def _converted(self, item: Any) -> AmqpMessage:
        try:
            return to_amqp_message(item)
        except BaseException:
            self._not_converted.append(item)
            raise

    def remaining(self) -> list[Any]:
        """Return what was read and is no message, and what was not read of a collection.

        A stream or iterator keeps its position for its owner. A collection whose iterator raises keeps what comes after
        that.
        """
        unread: list[Any] = [*self._not_converted]
        if self._stream is None and self._is_collection:
            # This is called for the account of a send that ends with an error of its own, perhaps this very one.
            with contextlib.suppress(Exception):
                for each in self._iterator:
                    unread.append(to_application(each))  # noqa: PERF401 - what came before the error is kept
        return unread
