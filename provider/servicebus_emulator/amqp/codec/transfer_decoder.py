"""Decodes a client's delivery into one message or the messages of a batch.

Decoding is the largest cost of an incoming message, so only what the broker needs is decoded: the positions of the
sections, the header, the annotations, and of the properties the message id, content type and session id. Messages of
one sender resemble each other, so decoded parts are cached by their bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from servicebus_emulator.amqp.codec.message_checks import check_count
from servicebus_emulator.amqp.codec.raw_encoding import (
    NULL,
    MalformedValueError,
    compound_items,
    decode_integer,
    decode_text,
    encode_list,
    encode_string,
    encoded_items,
    value_end,
)
from servicebus_emulator.amqp.codec.sections import (
    Section,
    SectionCode,
    data_section_body,
    encode_section,
    received_sections,
    sections,
)
from servicebus_emulator.engine.model.message import Content

PING_CONTENT_TYPE = b"application/vnd.ms-servicebus-ping"

_SCHEDULED = "x-opt-scheduled-enqueue-time"
# Set by the broker itself; values from a sender are dropped.
_BROKER_ANNOTATIONS = frozenset(
    {
        "x-opt-sequence-number",
        "x-opt-enqueued-time",
        "x-opt-enqueue-sequence-number",
        "x-opt-locked-until",
        "x-opt-lock-token",
        "x-opt-message-state",
        "x-opt-deadletter-source",
    }
)
_NULL = 0x40
_SHORT = frozenset({0xC0, 0xC1})
_FIRST_OF_SHORT, _FIRST_OF_LONG = 3, 9
_EMPTY_LIST = b"\x45"
_HEADER_FIELDS_KEPT = 4
_TIME_TO_LIVE = 2
# Positions among the fields that follow the message id.
_CONTENT_TYPE = 5
_GROUP_ID = 9
# The last millisecond of the year 9999, the largest time that clients can represent.
_END_OF_CALENDAR = 253_402_300_799_999

# Plain integers: comparing with enumeration members takes several times as long.
_HEADER: Final = int(SectionCode.HEADER)
_ANNOTATIONS: Final = int(SectionCode.MESSAGE_ANNOTATIONS)
_PROPERTIES: Final = int(SectionCode.PROPERTIES)
_DATA: Final = int(SectionCode.DATA)

_MAX_CACHED: Final = 1024
_MAX_CACHED_BYTES: Final = 256

R = TypeVar("R")


class _DecodeCache(dict[bytes, R]):
    """A cache of decoded parts of messages by their bytes, limited in entries and length."""

    def __init__(self, decode: Callable[[bytes], R]) -> None:
        super().__init__()
        self._decode = decode

    def __missing__(self, data: bytes) -> R:
        found = self._decode(data)
        if len(data) <= _MAX_CACHED_BYTES:
            if len(self) >= _MAX_CACHED:
                self.clear()
            self[data] = found
        return found


def decode_transfer(data: bytes, *, batch: bool, new_id: Callable[[], str]) -> list[Content]:
    """Decode a delivery: a single message, or a batch, whose data sections are messages.

    :param batch: whether the message format of the transfer is that of a batch; the contents never decide, because the
        payload of a message may be an encoded message.
    :param new_id: returns an id for a message that has none.
    :raises MalformedValueError: when the bytes are not a message, or those of a batch not messages.
    :raises MessageTooLarge: when the application properties of a message exceed 64 KB.
    :raises UnprocessableMessage: when there are more than 4,500 messages.
    """
    found = received_sections(data)
    if not batch:
        return [_decode(data, found, new_id)]
    messages = [data_section_body(data, value, end) for code, _, value, end in found if code == _DATA]
    if len(messages) == 0:
        raise MalformedValueError("a batch without messages")
    check_count(len(messages))
    return [decode_message(each, new_id=new_id) for each in messages]


def decode_message(data: bytes, *, new_id: Callable[[], str]) -> Content:
    """Decode a single message.

    :raises MalformedValueError: when the bytes are not a message.
    :raises MessageTooLarge: when its application properties exceed 64 KB.
    """
    return _decode(data, received_sections(data), new_id)


def encoded_message_id(content: Content) -> bytes:
    """Return the encoded message id; ids of different AMQP types are different ids."""
    _, _, value, end = sections(content.sections)[0]
    return compound_items(content.sections[value:end])[0]


def _decode(data: bytes, found: list[Section], new_id: Callable[[], str]) -> Content:
    header, time_to_live = b"", None
    annotations, annotation_count, scheduled_for = b"", 0, None
    properties, has_id, session_id, ping = _EMPTY_LIST, False, None, False
    kept = len(data)
    for code, start, value, end in found:
        if code >= _PROPERTIES:
            kept = start
            if code == _PROPERTIES:
                properties = data[value:end]
                has_id, session_id, ping = _decode_properties(properties)
                kept = start if has_id else end
            break
        if code == _HEADER:
            header, time_to_live = _HEADERS[data[value:end]]
        elif code == _ANNOTATIONS:
            annotations, annotation_count, scheduled_for = _ANNOTATION_MAPS[data[value:end]]
    encoded = data[kept:] if has_id else _with_message_id(properties, message_id=new_id()) + data[kept:]
    # Positional arguments: keywords would double the time of this function.
    return Content(header, annotations, annotation_count, encoded, time_to_live, scheduled_for, session_id, ping)


def _decode_properties(data: bytes) -> tuple[bool, str | None, bool]:
    """Return whether there is a message id, the session id, and whether the message is a ping."""
    if data[0] in _SHORT and len(data) > _FIRST_OF_SHORT:
        announced, first = data[2], _FIRST_OF_SHORT
    else:
        announced, first = len(compound_items(data)), _FIRST_OF_LONG
        if announced == 0:
            return False, None, False
    count, session_id, ping = _OTHER_FIELDS[data[value_end(data, first) :]]
    if count + 1 != announced:
        raise MalformedValueError(f"the properties announce {announced} fields but contain {count + 1}")
    return data[first] != _NULL, session_id, ping


def _decode_other_fields(data: bytes) -> tuple[int, str | None, bool]:
    """Return the number of fields after the message id, the session id, and whether the message is a ping."""
    fields = encoded_items(data, 0)
    session_id = decode_text(fields[_GROUP_ID]) if len(fields) > _GROUP_ID else None
    return len(fields), session_id, len(fields) > _CONTENT_TYPE and fields[_CONTENT_TYPE][2:] == PING_CONTENT_TYPE


def _decode_header(data: bytes) -> tuple[bytes, int | None]:
    fields = compound_items(data)[:_HEADER_FIELDS_KEPT]
    fields += [NULL] * (_HEADER_FIELDS_KEPT - len(fields))
    return b"".join(fields), _within_calendar(decode_integer(fields[_TIME_TO_LIVE]))


def _decode_annotations(data: bytes) -> tuple[bytes, int, int | None]:
    items = compound_items(data)
    if len(items) % 2 != 0:
        raise MalformedValueError("the message annotations contain a key without a value")
    kept: list[bytes] = []
    scheduled_for = None
    for key, value in zip(items[::2], items[1::2], strict=True):
        name = decode_text(key)
        if name in _BROKER_ANNOTATIONS:
            continue
        if name == _SCHEDULED:
            scheduled_for = _within_calendar(decode_integer(value))
        kept += (key, value)
    return b"".join(kept), len(kept), scheduled_for


_HEADERS: Final = _DecodeCache(_decode_header)
_ANNOTATION_MAPS: Final = _DecodeCache(_decode_annotations)
_OTHER_FIELDS: Final = _DecodeCache(_decode_other_fields)


def _within_calendar(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else max(0, min(milliseconds, _END_OF_CALENDAR))


def _with_message_id(properties: bytes, *, message_id: str) -> bytes:
    fields = [encode_string(message_id), *compound_items(properties)[1:]]
    return encode_section(SectionCode.PROPERTIES, encode_list(fields))
