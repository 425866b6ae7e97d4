"""Encodes a stored message for delivery: the sender's bytes with the broker's annotations."""

from __future__ import annotations

from functools import lru_cache
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
_COMMON_LAYOUT = f"{len(_SEQUENCE_NUMBER)}sq{len(_ENQUEUED)}sq{len(_ENQUEUE_NUMBER)}sq"
_pack_annotations = Struct(f">{_COMMON_LAYOUT}").pack

_LOCKED_UNTIL = encode_symbol("x-opt-locked-until") + b"\x83"
_DEAD_LETTER_SOURCE = encode_symbol("x-opt-deadletter-source")
_STATE = encode_symbol("x-opt-message-state")

# .NET stores the first three parts of a GUID in little-endian order, AMQP those of a UUID in big-endian order.
_unpack_guid = Struct("<IHH8s").unpack
_pack_uuid = Struct(">IHH8s").pack

# Both annotations of a locked message that has no others: nearly all messages. One call for speed.
_TOKEN_START = _DELIVERY_ANNOTATIONS + encode_compound(_MAP, body=_LOCK_TOKEN + _UUID + bytes(16), count=2)[:-16]
_LOCKED_LAYOUT = f"{_COMMON_LAYOUT}{len(_LOCKED_UNTIL)}sq"
_LOCKED_BYTES = Struct(f">{_LOCKED_LAYOUT}").size
_LOCKED_START = (
    _ANNOTATIONS + encode_compound(_MAP, body=bytes(_LOCKED_BYTES), count=_COMMON_ITEMS + 2)[:-_LOCKED_BYTES]
)
_pack_locked = Struct(f">{len(_TOKEN_START)}sIHH8s{len(_LOCKED_START)}s{_LOCKED_LAYOUT}").pack

_REASON = "DeadLetterReason"
_DESCRIPTION = "DeadLetterErrorDescription"


def encode_delivery(message: Message) -> bytes:
    """Encode a message for delivery.

    The delivery annotations of a locked message contain its lock token, as does its delivery tag. The header keeps the
    sender's durable, priority and ttl fields, and the message annotations keep the sender's own. The properties and all
    sections after them are as sent, except for the reason of a dead letter.
    """
    content, lock, info = message.content, message.lock, message.dead_letter
    header = _header(content.header, message.delivery_count)
    sections = content.sections if info is None else _with_dead_letter_reason(content.sections, info=info)
    if (
        lock is None
        or content.annotation_count > 0
        or message.state is not MessageState.ACTIVE
        or message.dead_letter_source is not None
    ):
        return header + _all_annotations(message) + sections
    annotations = _pack_locked(
        _TOKEN_START,
        *_unpack_guid(lock.token),
        _LOCKED_START,
        _SEQUENCE_NUMBER,
        message.sequence_number,
        _ENQUEUED,
        message.enqueued_at,
        _ENQUEUE_NUMBER,
        message.enqueued_sequence_number,
        _LOCKED_UNTIL,
        lock.locked_until,
    )
    return header + annotations + sections


@lru_cache(maxsize=1024)
def _header(fields: bytes, delivery_count: int) -> bytes:
    """Encode a header, of which messages have few different ones.

    :param fields: the encoded first four fields; empty if the sender set none.
    """
    body = (fields or _NO_HEADER) + encode_uint(delivery_count)
    return _HEADER + encode_compound(_LIST, body=body, count=_HEADER_FIELDS)


def _all_annotations(message: Message) -> bytes:
    """Encode the delivery annotations and message annotations of any message."""
    content, lock = message.content, message.lock
    count = content.annotation_count + _COMMON_ITEMS
    annotations = content.annotations + _pack_annotations(
        _SEQUENCE_NUMBER,
        message.sequence_number,
        _ENQUEUED,
        message.enqueued_at,
        _ENQUEUE_NUMBER,
        message.enqueued_sequence_number,
    )
    token = b""
    if lock is not None:
        token = _TOKEN_START + _pack_uuid(*_unpack_guid(lock.token))
        annotations += _LOCKED_UNTIL + encode_timestamp(lock.locked_until)[1:]
        count += 2
    if message.state is not MessageState.ACTIVE:
        annotations += _STATE + bytes((_INT, 0, 0, 0, message.state))
        count += 2
    if message.dead_letter_source is not None:
        annotations += _DEAD_LETTER_SOURCE + encode_string(message.dead_letter_source)
        count += 2
    return token + _ANNOTATIONS + encode_compound(_MAP, body=annotations, count=count)


def _with_dead_letter_reason(data: bytes, *, info: DeadLetterInfo) -> bytes:
    """Add the dead-letter reason and description as application properties, as the service does."""
    added: list[bytes] = []
    for name, text in ((_REASON, info.reason), (_DESCRIPTION, info.description)):
        if text is not None:
            added += (encode_string(name), encode_string(text))
    return replace_application_properties(data, names=(_REASON, _DESCRIPTION), added=added)
