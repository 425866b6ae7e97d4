"""A stored message as it goes to a receiver: the sender's bytes with the broker's marks on them."""

from __future__ import annotations

from struct import Struct

from servicebus_emulator.amqp.encoding import (
    NULL,
    compound_items,
    decode_text,
    encode_compound,
    encode_string,
    encode_symbol,
    encode_timestamp,
    encode_uint,
)
from servicebus_emulator.amqp.sections import Code, sections
from servicebus_emulator.engine.message import DeadLetterMark, Message, MessageState

__all__ = ["encode_delivery"]

_LIST, _MAP = 0xC0, 0xC1
_HEADER = b"\x00\x53\x70"
_ANNOTATIONS = b"\x00\x53\x72"
_APPLICATION_PROPERTIES = b"\x00\x53\x74"
_NO_HEADER = NULL * 4
_HEADER_FIELDS = 5
_INT = 0x71

# What every message bears, each with the constructor of its value: a long, a timestamp, a long.
_NUMBER = encode_symbol("x-opt-sequence-number") + b"\x81"
_ENQUEUED = encode_symbol("x-opt-enqueued-time") + b"\x83"
_ORIGIN = encode_symbol("x-opt-enqueue-sequence-number") + b"\x81"
_MARKS_AT_LEAST = 6
_pack_marks = Struct(f">{len(_NUMBER)}sq{len(_ENQUEUED)}sq{len(_ORIGIN)}sq").pack

_LOCKED_UNTIL = encode_symbol("x-opt-locked-until")
_DIED_IN = encode_symbol("x-opt-deadletter-source")
_STATE = encode_symbol("x-opt-message-state")

_REASON = "DeadLetterReason"
_DESCRIPTION = "DeadLetterErrorDescription"


def encode_delivery(message: Message) -> bytes:
    """Encode a message for its receiver.

    The header keeps the sender's durable, priority and ttl; the annotations keep the sender's own;
    everything from the properties on is what was sent, but for the reason of a dead letter.
    """
    content, lock, mark = message.content, message.lock, message.dead_letter
    header = (content.header or _NO_HEADER) + encode_uint(message.delivery_count)
    count = content.annotation_count + _MARKS_AT_LEAST
    marks = content.annotations + _pack_marks(
        _NUMBER, message.number, _ENQUEUED, message.enqueued_at, _ORIGIN, message.origin
    )
    if lock is not None:
        marks += _LOCKED_UNTIL + encode_timestamp(lock.until)
        count += 2
    if message.state is not MessageState.ACTIVE:
        marks += _STATE + bytes((_INT, 0, 0, 0, message.state))
        count += 2
    if message.died_in is not None:
        marks += _DIED_IN + encode_string(message.died_in)
        count += 2
    return (
        _HEADER
        + encode_compound(_LIST, body=header, count=_HEADER_FIELDS)
        + _ANNOTATIONS
        + encode_compound(_MAP, body=marks, count=count)
        + (content.sections if mark is None else _with_dead_letter_mark(content.sections, mark=mark))
    )


def _with_dead_letter_mark(data: bytes, *, mark: DeadLetterMark) -> bytes:
    """Write the reason of a dead letter into the application properties, as the service does."""
    before, after, items = 0, 0, list[bytes]()
    for code, start, begins, end in sections(data):
        if code == Code.PROPERTIES:
            before = after = end
        elif code == Code.APPLICATION_PROPERTIES:
            items = compound_items(data[begins:end])
            before, after = start, end
    kept: list[bytes] = []
    # strict=False: a key without a value, which no client sends, must not make the message undeliverable.
    for key, value in zip(items[::2], items[1::2], strict=False):
        if decode_text(key) not in {_REASON, _DESCRIPTION}:
            kept += (key, value)
    for name, text in ((_REASON, mark.reason), (_DESCRIPTION, mark.description)):
        if text is not None:
            kept += (encode_string(name), encode_string(text))
    properties = _APPLICATION_PROPERTIES + encode_compound(_MAP, body=b"".join(kept), count=len(kept))
    return data[:before] + properties + data[after:]
