"""A stored message as it goes to a receiver: the sender's bytes with the broker's marks on them."""

from __future__ import annotations

from servicebus_emulator.amqp.amending import with_application_properties
from servicebus_emulator.amqp.encoding import (
    NULL,
    encode_compound,
    encode_long,
    encode_string,
    encode_symbol,
    encode_timestamp,
    encode_uint,
)
from servicebus_emulator.engine.message import DeadLetterMark, Message, MessageState

__all__ = ["encode_delivery"]

_LIST, _MAP = 0xC0, 0xC1
_HEADER = b"\x00\x53\x70"
_DELIVERY_ANNOTATIONS = b"\x00\x53\x71"
_ANNOTATIONS = b"\x00\x53\x72"
_NO_HEADER = NULL * 4
_INT = 0x71

_UUID = b"\x98"
_LOCK_TOKEN = encode_symbol("x-opt-lock-token")
_NUMBER = encode_symbol("x-opt-sequence-number")
_ENQUEUED = encode_symbol("x-opt-enqueued-time")
_ORIGIN = encode_symbol("x-opt-enqueue-sequence-number")
_LOCKED_UNTIL = encode_symbol("x-opt-locked-until")
_DIED_IN = encode_symbol("x-opt-deadletter-source")
_STATE = encode_symbol("x-opt-message-state")

_REASON = "DeadLetterReason"
_DESCRIPTION = "DeadLetterErrorDescription"


def encode_delivery(message: Message) -> bytes:
    """Encode a message for its receiver.

    A locked message says its lock token in the delivery annotations, beside the delivery tag. The header keeps the
    sender's durable, priority and ttl; the annotations keep the sender's own; everything from the properties on is
    what was sent, but for the reason of a dead letter.
    """
    content = message.content
    header = (content.header or _NO_HEADER) + encode_uint(message.delivery_count)
    marks = [
        content.annotations,
        _NUMBER,
        encode_long(message.number),
        _ENQUEUED,
        encode_timestamp(message.enqueued_at),
        _ORIGIN,
        encode_long(message.origin),
    ]
    count = content.annotation_count + 6
    if message.lock is not None:
        marks += (_LOCKED_UNTIL, encode_timestamp(message.lock.until))
        count += 2
    if message.state is not MessageState.ACTIVE:
        marks += (_STATE, bytes((_INT, 0, 0, 0, message.state)))
        count += 2
    if message.died_in is not None:
        marks += (_DIED_IN, encode_string(message.died_in))
        count += 2
    mark = message.dead_letter
    return b"".join(
        (
            _HEADER,
            encode_compound(_LIST, body=header, count=5),
            b"" if message.lock is None else _delivery_annotations(message.lock.token),
            _ANNOTATIONS,
            encode_compound(_MAP, body=b"".join(marks), count=count),
            content.sections if mark is None else _with_dead_letter_mark(content.sections, mark=mark),
        )
    )


def _delivery_annotations(token: bytes) -> bytes:
    """Encode the delivery annotations: the lock token as a UUID, which .NET writes with its first parts reversed."""
    value = _UUID + token[3::-1] + token[5:3:-1] + token[7:5:-1] + token[8:]
    return _DELIVERY_ANNOTATIONS + encode_compound(_MAP, body=_LOCK_TOKEN + value, count=2)


def _with_dead_letter_mark(data: bytes, *, mark: DeadLetterMark) -> bytes:
    """Write the reason of a dead letter into the application properties, as the service does."""
    added: list[bytes] = []
    for name, text in ((_REASON, mark.reason), (_DESCRIPTION, mark.description)):
        if text is not None:
            added += (encode_string(name), encode_string(text))
    return with_application_properties(data, names=(_REASON, _DESCRIPTION), added=added)
