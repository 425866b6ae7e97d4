"""A batch that encodes each message only once.

Encoding is what a batched send spends its time on. The SDK's own batch (7.15) encodes each message twice, to measure
and to add it, and its asynchronous sender rebuilds a batch of any transport but its own. This module uses private
names without which it cannot be imported; the tests compare the bytes with those of the SDK's public batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from servicebus_pair.core.model.errors import InvalidMessageError, MessageTooLargeError
from servicebus_pair.core.model.events import MessageRef
from servicebus_pair.core.protocol.batching import partition_key
from servicebus_pair.core.sdk._private.capabilities import first_missing_attribute, incompatible_sdk_error
from servicebus_pair.core.sdk._private.message_encoding import Message, encode

try:
    from azure.servicebus.aio._transport._pyamqp_transport_async import PyamqpTransportAsync
except ImportError as error:
    raise incompatible_sdk_error(error) from error
if missing := first_missing_attribute(
    ServiceBusMessageBatch(), ("_message", "_amqp_transport"), consequence="nothing can be sent"
):
    raise incompatible_sdk_error(f"ServiceBusMessageBatch has no {missing!r}")

__all__ = ["EncodedBatch", "EncodedMessage", "encoded_size"]

# What the SDK's encoder raises for a value that has no AMQP encoding.
_ENCODING_ERRORS: Final = (ValueError, TypeError, OverflowError, struct.error)
# Two sections with their descriptors, the name of the annotation, and the longest headers of three strings.
_ENVELOPE_BYTES: Final = 80


class EncodedMessage(Message):
    """A message in the SDK's internal form, with its encoded bytes."""

    encoded: bytearray


class _EncodeOnce(PyamqpTransportAsync):
    """The SDK's transport, adding the bytes that it has just measured to the batch."""

    def __init__(self) -> None:
        self._encoded = bytearray()

    @property
    def last_size(self) -> int:
        """Size of the last message in bytes."""
        return len(self._encoded)

    def get_message_encoded_size(self, message: Any) -> int:  # type: ignore[override]  # a static method there
        self._encoded = bytearray()
        encode(self._encoded, message)
        return len(self._encoded)

    def add_batch(self, sb_message_batch: Any, outgoing_sb_message: Any) -> None:  # type: ignore[override]  # the same
        del outgoing_sb_message  # it is the message that was measured last
        sb_message_batch._message[5].append(self._encoded)  # noqa: SLF001 - see the module


class EncodedBatch:
    """A batch in the SDK's encoding; implements ``batching.Batch``.

    A message that remains the only one is sent alone. It may then be as large as ``max_message_bytes``, which can be
    more than a batch may have.

    :param max_bytes: maximum size of a batch, from the link.
    :param max_message_bytes: maximum size of a message outside a batch, from the link; at least ``max_bytes``.
    """

    def __init__(self, max_bytes: int, *, max_message_bytes: int = 0) -> None:
        self._max_bytes = max_bytes
        self._max_message_bytes = max(max_bytes, max_message_bytes)
        self._first: EncodedMessage | None = None
        self._transport = _EncodeOnce()
        self._batch: ServiceBusMessageBatch | None = None
        self.messages: list[AmqpAnnotatedMessage] = []
        self.refs: list[MessageRef] = []

    def __len__(self) -> int:
        return len(self.messages)

    def try_add(self, message: AmqpAnnotatedMessage) -> bool:
        """Add ``message``; return False when the batch is full.

        :raises MessageTooLargeError: it fits neither a batch nor the link.
        :raises InvalidMessageError: one of its values has no AMQP encoding.
        """
        try:
            size = self._add_first(message) if not self.messages else self._add(message)
        except MessageSizeExceededError:
            return False
        except _ENCODING_ERRORS as error:
            raise _invalid(message, error) from error
        self.messages.append(message)
        self.refs.append(MessageRef(_message_id(message), size))
        return True

    def _add_first(self, message: AmqpAnnotatedMessage) -> int:
        first = EncodedMessage._make(PyamqpTransportAsync.to_outgoing_amqp_message(message))
        first.encoded = bytearray()
        encode(first.encoded, first)
        size = len(first.encoded)
        if size > self._max_message_bytes:
            raise MessageTooLargeError(
                f"message {_message_id(message)!r} takes {size} bytes: the link takes {self._max_message_bytes}"
            )
        self._first = first
        return size

    def _add(self, message: AmqpAnnotatedMessage) -> int:
        if self._batch is None:
            first = self.messages[0]
            # The SDK copies id, session id and partition key of the first message to the batch envelope without
            # counting them: the service would refuse a full batch for its size.
            max_bytes = self._max_bytes - _max_envelope_bytes(first)
            batch = ServiceBusMessageBatch(max_bytes, amqp_transport=self._transport)
            batch.add_message(first)
            self._batch = batch
        self._batch.add_message(message)
        return self._transport.last_size

    def split(self) -> list[EncodedBatch]:
        """Return two batches with half of the messages each, in order."""
        middle = (len(self.messages) + 1) // 2
        return [*self.repack(self.messages[:middle]), *self.repack(self.messages[middle:])]

    def repack(self, messages: Iterable[AmqpAnnotatedMessage]) -> list[EncodedBatch]:
        """Return some of the messages in batches with the same limits, in order.

        This is one batch, unless its envelope is larger because another message comes first.
        """
        batches = [self._empty()]
        for message in messages:
            if not batches[-1].try_add(message):
                batches.append(self._empty())
                batches[-1].try_add(message)
        return batches

    def _empty(self) -> EncodedBatch:
        return EncodedBatch(self._max_bytes, max_message_bytes=self._max_message_bytes)

    @property
    def sdk_batch(self) -> ServiceBusMessageBatch | AmqpAnnotatedMessage:
        """The argument for the SDK's ``send_messages``: the batch, or the message if there is only one."""
        if self._batch is None or len(self.messages) == 1:
            return self.messages[0]
        # The class itself, as in the SDK's own batches: the sender rebuilds a batch of any other transport.
        self._batch._amqp_transport = PyamqpTransportAsync  # noqa: SLF001 - see the module
        return self._batch

    @property
    def single_message(self) -> EncodedMessage | None:
        """The encoded message if there is only one, else ``None``."""
        return self._first if len(self.messages) == 1 else None


def encoded_size(message: AmqpAnnotatedMessage) -> int:
    """Return the size in bytes of ``message`` when it is sent alone.

    :raises InvalidMessageError: one of its values has no AMQP encoding.
    """
    encoded = bytearray()
    try:
        encode(encoded, PyamqpTransportAsync.to_outgoing_amqp_message(message))
    except _ENCODING_ERRORS as error:
        raise _invalid(message, error) from error
    return len(encoded)


def _invalid(message: AmqpAnnotatedMessage, error: Exception) -> InvalidMessageError:
    return InvalidMessageError(f"message {_message_id(message)!r} cannot be encoded, {type(error).__name__}: {error}")


def _max_envelope_bytes(first: AmqpAnnotatedMessage) -> int:
    """Return an upper bound for the size of the batch envelope when ``first`` is the first message."""
    properties = first.properties
    ids = () if properties is None else (properties.message_id, properties.group_id)
    return _ENVELOPE_BYTES + sum(len(str(each).encode()) for each in (*ids, partition_key(first)) if each is not None)


def _message_id(message: AmqpAnnotatedMessage) -> str:
    value = None if message.properties is None else message.properties.message_id
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
