"""A batch that knows its size in bytes, on either way into azure-servicebus.

Encoding is what a batched send spends its time on. The SDK's own batch (7.15) encodes each message twice, to measure
and to add it, and its asynchronous sender does so again with a batch that it did not create. On the fast path each
message is encoded once, here; the tests compare the bytes with those of the SDK's public batch. On the public path the
SDK's batch measures each message, and the SDK encodes what is sent.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Self

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.model.errors import InvalidMessageError
from servicebus_pair.core.model.events import MessageRef
from servicebus_pair.core.protocol.amqp_message import AmqpMessage, body_digest
from servicebus_pair.core.protocol.batching import SizedBatch, message_bytes, partition_key
from servicebus_pair.core.sdk._private.capabilities import fast_path, tracing
from servicebus_pair.core.sdk.messages import to_sdk

if TYPE_CHECKING:
    from servicebus_pair.core.sdk._private.message_encoding import EncodedMessage

# What the SDK's encoder raises for a value that has no AMQP encoding.
_ENCODING_ERRORS: Final = (ValueError, TypeError, OverflowError, struct.error)
# Two sections with their descriptors, the name of the annotation, and the longest headers of three strings.
_ENVELOPE_BYTES: Final = 80
_NO_LIMIT: Final = 2**63


class EncodedBatch(SizedBatch[AmqpMessage]):
    """A batch of messages with their encoded sizes.

    :param preencodes: whether the link takes encoded messages; by default, whether it may.
    :ivar ids: the id of each message.
    :ivar sizes: its encoded size in bytes.
    """

    def __init__(self, max_bytes: int, *, max_message_bytes: int = 0, preencodes: bool | None = None) -> None:
        super().__init__(max_bytes, max_message_bytes=max_message_bytes)
        preencodes = takes_preencoded() if preencodes is None else preencodes
        self._encoding = _message_encoding() if preencodes else None
        self._encoded: list[bytearray] = []
        self._first: Any = None
        self.ids: list[str] = []
        self.sizes: list[int] = []
        self._refs: tuple[MessageRef, ...] = ()

    def try_add(self, message: AmqpMessage) -> bool:
        """Add ``message``; return False when the batch is full.

        :raises MessageTooLargeError: it fits neither a batch nor the link.
        :raises InvalidMessageError: one of its values has no AMQP encoding.
        """
        sections: Any = None
        encoded = bytearray()
        try:
            if self._encoding is None:
                size = _public_size(message)
            else:
                sections = self._encoding.sections(message)
                encoded = self._encoding.encode(sections)
                size = len(encoded)
        except _ENCODING_ERRORS as error:
            raise _invalid(message, error) from error
        if not self._append(message, size):
            return False
        self.ids.append(_message_id(message))
        self.sizes.append(size)
        if sections is not None:
            self._first = self._first or sections
            self._encoded.append(encoded)
        return True

    @property
    def refs(self) -> tuple[MessageRef, ...]:
        """Id, size and digest of each message, for those who record it."""
        self.prepare_refs()
        return self._refs

    def prepare_refs(self) -> None:
        """Make :attr:`refs`, unless they are made; once the batch is complete."""
        if len(self._refs) < len(self.ids):
            self._refs = tuple(map(MessageRef, self.ids, self.sizes, map(body_digest, self.messages)))

    def _envelope_bytes(self) -> int:
        # The SDK copies id, session id and partition key of the first message to the batch envelope without counting
        # them: the service would refuse a full batch for its size.
        return _max_envelope_bytes(*self.messages)

    def _name(self, message: AmqpMessage) -> str:
        return _message_id(message)

    def _empty(self) -> Self:
        return type(self)(
            self._max_bytes, max_message_bytes=self._max_message_bytes, preencodes=self._encoding is not None
        )

    @property
    def public_form(self) -> list[AmqpAnnotatedMessage] | AmqpAnnotatedMessage:
        """The argument for the SDK's ``send_messages``: the messages, or the message if there is only one."""
        match [to_sdk(message) for message in self.messages]:
            case [message]:
                return message
            case messages:
                return messages

    @property
    def encoded_form(self) -> EncodedMessage | list[Any] | None:
        """The batch in the SDK's internal form, or the message if there is only one; ``None`` on the public path."""
        encoding: Any = self._encoding
        if encoding is None:
            return None
        form: EncodedMessage | list[Any]
        if len(self._encoded) == 1:
            form = encoding.sdk_message(self._first, *self._encoded)
            return form
        first = self.messages[0]
        properties = first.properties
        form = encoding.envelope(
            self._encoded,
            message_id=None if properties is None else _text_if_utf8(properties.message_id),
            session_id=None if properties is None else _text_if_utf8(properties.group_id),
            partition_key=partition_key(first),
        )
        return form


def encoded_size(message: AmqpMessage) -> int:
    """Return the size in bytes of ``message`` when it is sent alone.

    :raises InvalidMessageError: one of its values has no AMQP encoding.
    """
    try:
        return len(_message_encoding().encode_message(message)) if takes_preencoded() else _public_size(message)
    except _ENCODING_ERRORS as error:
        raise _invalid(message, error) from error


def message_ref(message: AmqpMessage) -> MessageRef:
    """Return id, size and digest of ``message``. :raises InvalidMessageError: as :func:`encoded_size`."""
    return MessageRef(_message_id(message), encoded_size(message), body_digest(message))


def takes_preencoded() -> bool:
    """Return whether a link that is attached now takes what is encoded here, or the SDK must encode."""
    return fast_path() and not tracing()


@cache
def _message_encoding() -> Any:
    """Return our encoder, which uses private names of the SDK."""
    from servicebus_pair.core.sdk._private import message_encoding

    return message_encoding


def _public_size(message: AmqpMessage) -> int:
    """Return the encoded size of a message as the SDK's batch measures it."""
    batch = ServiceBusMessageBatch(_NO_LIMIT)
    empty = batch.size_in_bytes
    batch.add_message(to_sdk(message))
    return message_bytes(batch.size_in_bytes - empty)


def _invalid(message: AmqpMessage, error: Exception) -> InvalidMessageError:
    return InvalidMessageError(f"message {_message_id(message)!r} cannot be encoded, {type(error).__name__}: {error}")


def _max_envelope_bytes(first: AmqpMessage) -> int:
    """Return an upper bound for the size of the batch envelope when ``first`` is the first message."""
    properties = first.properties
    ids = () if properties is None else (properties.message_id, properties.group_id)
    return _ENVELOPE_BYTES + sum(len(str(each).encode()) for each in (*ids, partition_key(first)) if each is not None)


def _message_id(message: AmqpMessage) -> str:
    value = None if message.properties is None else message.properties.message_id
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def _text_if_utf8(value: Any) -> Any:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value
