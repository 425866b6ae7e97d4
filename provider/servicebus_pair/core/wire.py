"""Messages in their wire form: a batch that encodes each message once.

The SDK's own batch encodes each message twice, to measure it and to add it, and its asynchronous
sender builds a batch of any transport but its own all over again. Packing is what a batched send
spends its time on, so here each message is encoded once (``encoding``). It uses names which the
SDK (7.15) does not promise to keep, and without which it cannot be imported; its tests compare
the bytes with those of the SDK's public batch, message by message.
"""

from __future__ import annotations

import struct
from typing import Any, Final

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from servicebus_pair.core.batching import partition_key
from servicebus_pair.core.encoding import Message, encode
from servicebus_pair.core.errors import InvalidMessageError, MessageTooLargeError
from servicebus_pair.core.events import MessageRef
from servicebus_pair.core.sdk_names import absent, unusable

try:
    from azure.servicebus.aio._transport._pyamqp_transport_async import PyamqpTransportAsync
except ImportError as error:
    raise unusable(error) from error
if lacking := absent(ServiceBusMessageBatch(), ("_message", "_amqp_transport"), costs="nothing can be sent"):
    raise unusable(f"ServiceBusMessageBatch has no {lacking!r}")

__all__ = ["EncodedMessage", "WireBatch", "encoded_size"]

# What the SDK's encoder raises for a value that AMQP, or the SDK, has no form for.
_UNENCODABLE: Final = (ValueError, TypeError, OverflowError, struct.error)
# Two sections with their descriptors, the annotation's name, and the longest headers of three strings.
_ENVELOPE_BYTES: Final = 80


class EncodedMessage(Message):
    """A message in the SDK's inner form, with its bytes beside it."""

    encoded: bytearray


class _EncodeOnce(PyamqpTransportAsync):
    """The SDK's transport, which adds the bytes that it has measured."""

    def __init__(self) -> None:
        self._encoded = bytearray()

    @property
    def measured(self) -> int:
        """The size of the last message, in bytes."""
        return len(self._encoded)

    def get_message_encoded_size(self, message: Any) -> int:  # type: ignore[override]  # a static method there
        self._encoded = bytearray()
        encode(self._encoded, message)
        return len(self._encoded)

    def add_batch(self, sb_message_batch: Any, outgoing_sb_message: Any) -> None:  # type: ignore[override]  # the same
        del outgoing_sb_message  # it was measured last
        sb_message_batch._message[5].append(self._encoded)  # noqa: SLF001 - see the module


class WireBatch:
    """A batch in the SDK's encoding; implements ``batching.Batch``.

    The SDK copies id, session id and partition key of the first message to the batch's envelope
    and does not count them: without room for them a full batch is refused for its size.

    A message that stays the only one goes alone, and so does one that fits no batch, if the link
    takes one so large: only a second one makes a batch.

    :param limit: most bytes of a batch, from the link.
    :param largest: most bytes of a message that goes alone, from the link; never less than ``limit``.
    """

    def __init__(self, limit: int, *, largest: int = 0) -> None:
        self._limit = limit
        self._largest = max(limit, largest)
        self._only: EncodedMessage | None = None
        self._transport: _EncodeOnce | None = None
        self._batch: ServiceBusMessageBatch | None = None
        self.messages: list[AmqpAnnotatedMessage] = []
        self.refs: list[MessageRef] = []

    def try_add(self, message: AmqpAnnotatedMessage) -> bool:
        """Add ``message`` unless the batch is full.

        :raises MessageTooLargeError: it fits neither a batch nor the link.
        :raises InvalidMessageError: a value of it has no AMQP encoding.
        """
        try:
            size = self._begin(message) if not self.messages else self._add(message)
        except MessageSizeExceededError:
            return False
        except _UNENCODABLE as error:
            raise InvalidMessageError(
                f"message {_message_id(message)!r} cannot be encoded, {type(error).__name__}: {error}"
            ) from error
        self.messages.append(message)
        self.refs.append(MessageRef(_message_id(message), size))
        return True

    def _begin(self, message: AmqpAnnotatedMessage) -> int:
        only = EncodedMessage._make(PyamqpTransportAsync.to_outgoing_amqp_message(message))
        only.encoded = bytearray()
        encode(only.encoded, only)
        size = len(only.encoded)
        if size > self._largest:
            raise MessageTooLargeError(
                f"message {_message_id(message)!r} takes {size} bytes: the link takes {self._largest}"
            )
        self._only = only
        return size

    def _add(self, message: AmqpAnnotatedMessage) -> int:
        if self._batch is None or self._transport is None:
            first = self.messages[0]
            self._transport = _EncodeOnce()
            batch = ServiceBusMessageBatch(self._limit - _envelope_bytes(first), amqp_transport=self._transport)
            batch.add_message(first)
            self._batch = batch
        self._batch.add_message(message)
        return self._transport.measured

    def __len__(self) -> int:
        return len(self.messages)

    def halves(self) -> tuple[WireBatch, WireBatch]:
        """Answer two batches with half of the messages each, in their order."""
        parts = WireBatch(self._limit, largest=self._largest), WireBatch(self._limit, largest=self._largest)
        for place, message in enumerate(self.messages):
            parts[2 * place >= len(self.messages)].try_add(message)
        return parts

    @property
    def wire(self) -> ServiceBusMessageBatch | AmqpAnnotatedMessage:
        """What an asynchronous sender of the SDK takes: the batch, or the message itself if it is alone."""
        if self._batch is None or len(self.messages) == 1:
            return self.messages[0]
        self._batch._amqp_transport = PyamqpTransportAsync  # noqa: SLF001 - see the module
        return self._batch

    @property
    def alone(self) -> EncodedMessage | None:
        """The message with its bytes if it is alone, for a sender that takes them; else ``None``."""
        return self._only if len(self.messages) == 1 else None


def encoded_size(message: AmqpAnnotatedMessage) -> int:
    """Answer the bytes of ``message`` as the SDK would send it alone.

    :raises InvalidMessageError: a value of it has no AMQP encoding.
    """
    encoded = bytearray()
    try:
        encode(encoded, PyamqpTransportAsync.to_outgoing_amqp_message(message))
    except _UNENCODABLE as error:
        raise InvalidMessageError(
            f"message {_message_id(message)!r} cannot be encoded, {type(error).__name__}: {error}"
        ) from error
    return len(encoded)


def _envelope_bytes(message: AmqpAnnotatedMessage) -> int:
    """At most how many bytes the batch's envelope takes up when ``message`` is the first one."""
    properties = message.properties
    ids = () if properties is None else (properties.message_id, properties.group_id)
    return _ENVELOPE_BYTES + sum(len(str(each).encode()) for each in (*ids, partition_key(message)) if each is not None)


def _message_id(message: AmqpAnnotatedMessage) -> str:
    value = None if message.properties is None else message.properties.message_id
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
