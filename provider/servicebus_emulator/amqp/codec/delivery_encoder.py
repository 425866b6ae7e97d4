"""Encodes a stored message for delivery: the sender's bytes with the broker's annotations."""

from __future__ import annotations

from struct import Struct

from servicebus_emulator.amqp.codec.raw_encoding import (
    NULL,
    encode_compound,
    encode_string,
    encode_symbol,
    encode_timestamp,
    encode_uint,
)
from servicebus_emulator.amqp.codec.section_rewrite import replace_application_properties
from servicebus_emulator.engine.model.message import DeadLetterInfo, Message, MessageState

__all__ = ["encode_delivery"]

_LIST, _MAP = 0xC0, 0xC1
_HEADER = b"\x00\x53\x70"
_DELIVERY_ANNOTATIONS = b"\x00\x53\x71"
_ANNOTATIONS = b"\x00\x53\x72"
_NO_HEADER = NULL * 4
_HEADER_FIELDS = 5
_INT = 0x71

_UUID = b"\x98"
_LOCK_TOKEN = encode_symbol("x-opt-lock-token")

# The annotations of every message, each with the constructor of its value: a long, a timestamp, a long.
_SEQUENCE_NUMBER = encode_symbol("x-opt-sequence-number") + b"\x81"
_ENQUEUED = encode_symbol("x-opt-enqueued-time") + b"\x83"
_ENQUEUE_NUMBER = encode_symbol("x-opt-enqueue-sequence-number") + b"\x81"
_COMMON_ITEMS = 6
_pack_annotations = Struct(f">{len(_SEQUENCE_NUMBER)}sq{len(_ENQUEUED)}sq{len(_ENQUEUE_NUMBER)}sq").pack

_LOCKED_UNTIL = encode_symbol("x-opt-locked-until")
_DEAD_LETTER_SOURCE = encode_symbol("x-opt-deadletter-source")
_STATE = encode_symbol("x-opt-message-state")

_REASON = "DeadLetterReason"
_DESCRIPTION = "DeadLetterErrorDescription"


def encode_delivery(message: Message) -> bytes:
    """Encode a message for delivery.

    The delivery annotations of a locked message contain its lock token, as does its delivery tag. The header keeps the
    sender's durable, priority and ttl fields, and the message annotations keep the sender's own. The properties and all
    sections after them are as sent, except for the reason of a dead letter.
    """
    content, lock, info = message.content, message.lock, message.dead_letter
    header = (content.header or _NO_HEADER) + encode_uint(message.delivery_count)
    count = content.annotation_count + _COMMON_ITEMS
    annotations = content.annotations + _pack_annotations(
        _SEQUENCE_NUMBER,
        message.sequence_number,
        _ENQUEUED,
        message.enqueued_at,
        _ENQUEUE_NUMBER,
        message.enqueued_sequence_number,
    )
    if lock is not None:
        annotations += _LOCKED_UNTIL + encode_timestamp(lock.locked_until)
        count += 2
    if message.state is not MessageState.ACTIVE:
        annotations += _STATE + bytes((_INT, 0, 0, 0, message.state))
        count += 2
    if message.dead_letter_source is not None:
        annotations += _DEAD_LETTER_SOURCE + encode_string(message.dead_letter_source)
        count += 2
    return (
        _HEADER
        + encode_compound(_LIST, body=header, count=_HEADER_FIELDS)
        + (b"" if lock is None else _delivery_annotations(lock.token))
        + _ANNOTATIONS
        + encode_compound(_MAP, body=annotations, count=count)
        + (content.sections if info is None else _with_dead_letter_reason(content.sections, info=info))
    )


def _delivery_annotations(token: bytes) -> bytes:
    """Encode the lock token as a UUID; .NET stores the first three parts of a GUID in little-endian order."""
    value = _UUID + token[3::-1] + token[5:3:-1] + token[7:5:-1] + token[8:]
    return _DELIVERY_ANNOTATIONS + encode_compound(_MAP, body=_LOCK_TOKEN + value, count=2)


def _with_dead_letter_reason(data: bytes, *, info: DeadLetterInfo) -> bytes:
    """Add the dead-letter reason and description as application properties, as the service does."""
    added: list[bytes] = []
    for name, text in ((_REASON, info.reason), (_DESCRIPTION, info.description)):
        if text is not None:
            added += (encode_string(name), encode_string(text))
    return replace_application_properties(data, names=(_REASON, _DESCRIPTION), added=added)
