"""Converts messages of the Azure SDK, which applications pass to a send, and back for the SDK's public interface."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterable, AsyncIterator, Collection, Iterable, Iterator
from typing import Any, Final, TypeAlias, TypeGuard

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from servicebus_pair.core.model.errors import InvalidMessageError
from servicebus_pair.core.protocol.amqp_message import PARTITION_KEY, AmqpMessage, BodyType, Header, Properties

_PARTITION_KEY: Final = PARTITION_KEY.encode()

Message: TypeAlias = ServiceBusMessage | AmqpAnnotatedMessage | AmqpMessage
Messages: TypeAlias = Message | Iterable[Message] | AsyncIterable[Message]


def is_message(value: object) -> TypeGuard[Message]:
    """Return whether ``value`` is a message that can be sent."""
    return isinstance(value, ServiceBusMessage | AmqpAnnotatedMessage | AmqpMessage)


def to_amqp_message(message: Any) -> AmqpMessage:
    """Return a message of an application in our form; one without an id gets one, in the application's object too.

    :raises InvalidMessageError: not a message.
    """
    if isinstance(message, AmqpMessage):
        if message.properties is None:
            message.properties = Properties()
        if message.properties.message_id is None:
            message.properties.message_id = uuid.uuid4().hex
        return message
    if isinstance(message, ServiceBusMessage):
        source = message.raw_amqp_message
    elif isinstance(message, AmqpAnnotatedMessage):
        source = message
    else:
        raise InvalidMessageError(
            f"a message is {type(message).__name__}: allowed are ServiceBusMessage and AmqpAnnotatedMessage"
        )
    properties = AmqpMessageProperties() if source.properties is None else source.properties
    if properties.message_id is None:
        properties.message_id = uuid.uuid4().hex
    source.properties = properties
    converted = from_sdk(source)
    converted.origin = message
    return converted


def to_application(message: Any) -> Any:
    """Return the application's own object for a message that was not sent."""
    return message.origin if isinstance(message, AmqpMessage) and message.origin is not None else message


class InputMessages:
    """The messages of one send, read one at a time.

    :param messages: a message, a collection, or an (asynchronous) iterable.
    :ivar is_stream: True for an asynchronous iterable.
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
        self.is_stream = self._stream is not None

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


def from_sdk(source: AmqpAnnotatedMessage) -> AmqpMessage:
    """Return a message in our form; maps and body parts are shared with ``source``."""
    header, properties, body = source.header, source.properties, source.body
    body_type = BodyType(source.body_type.value)
    return AmqpMessage(
        body if body_type is BodyType.VALUE else list(body),
        body_type,
        None
        if header is None
        else Header(header.durable, header.priority, header.time_to_live, header.first_acquirer, header.delivery_count),
        None
        if properties is None
        else Properties(
            properties.message_id,
            properties.user_id,
            properties.to,
            properties.subject,
            properties.reply_to,
            properties.correlation_id,
            properties.content_type,
            properties.content_encoding,
            properties.absolute_expiry_time,
            properties.creation_time,
            properties.group_id,
            properties.group_sequence,
            properties.reply_to_group_id,
        ),
        source.application_properties,
        source.annotations,
        source.delivery_annotations,
        source.footer,
    )


def to_sdk(message: AmqpMessage) -> AmqpAnnotatedMessage:
    """Return a message in the form that the SDK's public methods take."""
    annotations = message.annotations
    if annotations:
        # The SDK looks for the partition key of a batch by this name only.
        annotations = {_PARTITION_KEY if name == PARTITION_KEY else name: value for name, value in annotations.items()}
    return AmqpAnnotatedMessage(
        header=_section(message.header),
        properties=_section(message.properties),
        # Copied, since the SDK changes values that are bytes.
        application_properties=None if message.application_properties is None else dict(message.application_properties),
        annotations=annotations,  # type: ignore[arg-type]  # any mapping
        delivery_annotations=message.delivery_annotations,  # type: ignore[arg-type]  # the same
        footer=message.footer,  # type: ignore[arg-type]  # the same
        **{f"{message.body_type}_body": message.body},
    )


def _section(section: Header | Properties | None) -> dict[str, Any] | None:
    return None if section is None else {name: getattr(section, name) for name in section.__slots__}
