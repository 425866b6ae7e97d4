"""What a sender's transfer holds: one message, or a batch of them.

Reading is what an arriving message costs most, so only what the broker goes by is read: where the sections
lie, the header, the annotations, and of the properties the message id, the content type and the session.
Messages of one sender are much alike: what was read of those parts that do not differ is remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from servicebus_emulator.amqp.encoding import (
    NULL,
    MalformedValueError,
    compound_items,
    decode_integer,
    decode_text,
    encode_compound,
    encode_string,
    encoded_items,
    value_end,
)
from servicebus_emulator.amqp.sections import Code, Section, body_of_data, sections
from servicebus_emulator.engine.message import Content

__all__ = ["message_id_of", "read_message", "read_transfer"]

PING_CONTENT_TYPE = b"application/vnd.ms-servicebus-ping"

_SCHEDULED = "x-opt-scheduled-enqueue-time"
# What the broker itself writes on a message; a sender's value would only stand in the way.
_OURS = frozenset(
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
_SHORT_LIST, _NULL = 0xC0, 0x40
_SHORT = frozenset({0xC0, 0xC1})
_FIRST_OF_SHORT, _FIRST_OF_LONG = 3, 9
_EMPTY_LIST = b"\x45"
_HEADER_FIELDS_KEPT = 4
_TIME_TO_LIVE = 2
# Among the fields of the properties that follow the message id.
_CONTENT_TYPE = 5
_GROUP_ID = 9
# The last millisecond of the year 9999, beyond which no client can name a time.
_END_OF_CALENDAR = 253_402_300_799_999
_PROPERTIES_DESCRIPTOR = b"\x00\x53\x73"

# As plain numbers: comparing with a member of an enumeration costs several times as much.
_HEADER: Final = int(Code.HEADER)
_ANNOTATIONS: Final = int(Code.MESSAGE_ANNOTATIONS)
_PROPERTIES: Final = int(Code.PROPERTIES)
_DATA: Final = int(Code.DATA)
_OTHER_BODIES: Final = frozenset({int(Code.SEQUENCE), int(Code.VALUE)})

_REMEMBERED: Final = 1024
_LONGEST_REMEMBERED: Final = 256

R = TypeVar("R")


class _Memory(dict[bytes, R]):
    """What parts of messages say, by their bytes; what is long, or all different, is not kept for long."""

    def __init__(self, read: Callable[[bytes], R]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, data: bytes) -> R:
        found = self._read(data)
        if len(data) <= _LONGEST_REMEMBERED:
            if len(self) >= _REMEMBERED:
                self.clear()
            self[data] = found
        return found


def read_transfer(data: bytes, *, new_id: Callable[[], str]) -> list[Content]:
    """Read a transfer of a sender: a single message, or a batch envelope, whose data sections are messages.

    The envelope is told by its content, because Proton shows no transfer's message format (0x80013700).

    :param new_id: gives an id to a message that has none.
    :raises MalformedValueError: when the bytes are no message.
    """
    found = sections(data)
    batch = _batch_of(data, found=found)
    if batch is None:
        return [_read(data, found, new_id)]
    return [_read(each, inner, new_id) for each, inner in batch]


def read_message(data: bytes, *, new_id: Callable[[], str]) -> Content:
    """Read a single encoded message.

    :raises MalformedValueError: when the bytes are no message.
    """
    return _read(data, sections(data), new_id)


def message_id_of(content: Content) -> bytes:
    """Return the message id, encoded: ids of different AMQP types are different ids."""
    _, _, value, end = sections(content.sections)[0]
    return compound_items(content.sections[value:end])[0]


def _batch_of(data: bytes, *, found: list[Section]) -> list[tuple[bytes, list[Section]]] | None:
    messages: list[tuple[bytes, list[Section]]] = []
    for code, _, value, end in found:
        if code == _DATA:
            inner = body_of_data(data, value, end)
            try:
                inner_sections = sections(inner)
            except MalformedValueError:
                # Not an error: the data of a single message that is no message, or only begins like one.
                return None
            if len(inner_sections) == 0:
                return None
            messages.append((inner, inner_sections))
        elif code in _OTHER_BODIES:
            return None
    if len(messages) == 0:
        return None
    # The JavaScript client repeats the first message's application properties on the envelope; no other has any.
    repeated = _application_properties(data, found=found)
    first, first_sections = messages[0]
    return messages if repeated in {b"", _application_properties(first, found=first_sections)} else None


def _application_properties(data: bytes, *, found: list[Section]) -> bytes:
    return b"".join(data[start:end] for code, start, _, end in found if code == Code.APPLICATION_PROPERTIES)


def _read(data: bytes, found: list[Section], new_id: Callable[[], str]) -> Content:
    header, time_to_live = b"", None
    annotations, annotation_count, scheduled_for = b"", 0, None
    properties, named, session_id, ping = _EMPTY_LIST, False, None, False
    kept = len(data)
    for code, start, value, end in found:
        if code >= _PROPERTIES:
            kept = start
            if code == _PROPERTIES:
                properties = data[value:end]
                named, session_id, ping = _read_properties(properties)
                kept = start if named else end
            break
        if code == _HEADER:
            header, time_to_live = _HEADERS_READ[data[value:end]]
        elif code == _ANNOTATIONS:
            annotations, annotation_count, scheduled_for = _ANNOTATIONS_READ[data[value:end]]
    encoded = data[kept:] if named else _with_message_id(properties, message_id=new_id()) + data[kept:]
    # Not by keyword: that would take as long as all that was read.
    return Content(header, annotations, annotation_count, encoded, time_to_live, scheduled_for, session_id, ping)


def _read_properties(data: bytes) -> tuple[bool, str | None, bool]:
    """Return whether there is a message id, the session id, and whether the message is a ping."""
    if data[0] in _SHORT and len(data) > _FIRST_OF_SHORT:
        announced, first = data[2], _FIRST_OF_SHORT
    else:
        announced, first = len(compound_items(data)), _FIRST_OF_LONG
        if announced == 0:
            return False, None, False
    count, session_id, ping = _FIELDS_READ[data[value_end(data, first) :]]
    if count + 1 != announced:
        raise MalformedValueError(f"the properties announce {announced} fields and hold {count + 1}")
    return data[first] != _NULL, session_id, ping


def _read_others(data: bytes) -> tuple[int, str | None, bool]:
    """Return how many fields follow the message id, and of these the session id, and whether the message is a ping."""
    fields = encoded_items(data, 0)
    session_id = decode_text(fields[_GROUP_ID]) if len(fields) > _GROUP_ID else None
    return len(fields), session_id, len(fields) > _CONTENT_TYPE and fields[_CONTENT_TYPE][2:] == PING_CONTENT_TYPE


def _read_header(data: bytes) -> tuple[bytes, int | None]:
    fields = compound_items(data)[:_HEADER_FIELDS_KEPT]
    fields += [NULL] * (_HEADER_FIELDS_KEPT - len(fields))
    return b"".join(fields), _within_calendar(decode_integer(fields[_TIME_TO_LIVE]))


def _read_annotations(data: bytes) -> tuple[bytes, int, int | None]:
    items = compound_items(data)
    if len(items) % 2 != 0:
        raise MalformedValueError("the message annotations hold a key without a value")
    kept: list[bytes] = []
    scheduled_for = None
    for key, value in zip(items[::2], items[1::2], strict=True):
        name = decode_text(key)
        if name in _OURS:
            continue
        if name == _SCHEDULED:
            scheduled_for = _within_calendar(decode_integer(value))
        kept += (key, value)
    return b"".join(kept), len(kept), scheduled_for


_HEADERS_READ: Final = _Memory(_read_header)
_ANNOTATIONS_READ: Final = _Memory(_read_annotations)
_FIELDS_READ: Final = _Memory(_read_others)


def _within_calendar(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else max(0, min(milliseconds, _END_OF_CALENDAR))


def _with_message_id(properties: bytes, *, message_id: str) -> bytes:
    fields = [encode_string(message_id), *compound_items(properties)[1:]]
    return _PROPERTIES_DESCRIPTOR + encode_compound(_SHORT_LIST, body=b"".join(fields), count=len(fields))
