"""What a sender's transfer holds: one message, or a batch of them."""

from __future__ import annotations

from collections.abc import Callable

from servicebus_emulator.amqp.encoding import (
    NULL,
    MalformedValueError,
    compound_items,
    decode_integer,
    decode_text,
    encode_compound,
    encode_string,
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
_LIST, _MAP = 0xC0, 0xC1
_HEADER_FIELDS_KEPT = 4
_TIME_TO_LIVE = 2
_MESSAGE_ID = 0
_CONTENT_TYPE = 6
_GROUP_ID = 10
# The last millisecond of the year 9999, beyond which no client can name a time.
_END_OF_CALENDAR = 253_402_300_799_999
_PROPERTIES_DESCRIPTOR = b"\x00\x53\x73"


def read_transfer(data: bytes, *, new_id: Callable[[], str]) -> list[Content]:
    """Read a transfer of a sender: a single message, or a batch envelope, whose data sections are messages.

    The envelope is told by its content, because Proton does not show a transfer's message format.

    :param new_id: gives an id to a message that has none.
    :raises MalformedValueError: when the bytes are no message.
    """
    found = list(sections(data))
    batch = _batch_of(data, found=found)
    if batch is None:
        return [_read(data, found=found, new_id=new_id)]
    return [_read(each, found=inner, new_id=new_id) for each, inner in batch]


def read_message(data: bytes, *, new_id: Callable[[], str]) -> Content:
    """Read a single encoded message.

    :raises MalformedValueError: when the bytes are no message.
    """
    return _read(data, found=list(sections(data)), new_id=new_id)


def message_id_of(content: Content) -> bytes:
    """Return the message id, encoded: ids of different AMQP types are different ids."""
    first = next(sections(content.sections))
    return compound_items(content.sections[first.value : first.end])[_MESSAGE_ID]


def _batch_of(data: bytes, *, found: list[Section]) -> list[tuple[bytes, list[Section]]] | None:
    messages: list[tuple[bytes, list[Section]]] = []
    for section in found:
        if section.code == Code.DATA:
            inner = body_of_data(data, section)
            if not inner.startswith((b"\x00\x53", b"\x00\x80")):
                return None
            try:
                inner_sections = list(sections(inner))
            except MalformedValueError:
                # Not an error: the data of a single message that happens to begin like a section.
                return None
            messages.append((inner, inner_sections))
        elif section.code in {Code.SEQUENCE, Code.VALUE}:
            return None
    if len(messages) == 0:
        return None
    # The JavaScript client repeats the first message's application properties on the envelope; no other has any.
    repeated = _application_properties(data, found=found)
    first, first_sections = messages[0]
    return messages if repeated in {b"", _application_properties(first, found=first_sections)} else None


def _application_properties(data: bytes, *, found: list[Section]) -> bytes:
    return b"".join(data[each.start : each.end] for each in found if each.code == Code.APPLICATION_PROPERTIES)


def _read(data: bytes, *, found: list[Section], new_id: Callable[[], str]) -> Content:
    header, time_to_live = b"", None
    annotations, annotation_count, scheduled_for = b"", 0, None
    properties: list[bytes] = []
    kept = len(data)
    encoded_properties = b""
    for section in found:
        if section.code >= Code.PROPERTIES:
            kept = section.start
            if section.code == Code.PROPERTIES:
                properties = compound_items(data[section.value : section.end])
                encoded_properties = data[section.start : section.end]
                kept = section.end
            break
        if section.code == Code.HEADER:
            header, time_to_live = _read_header(data[section.value : section.end])
        elif section.code == Code.MESSAGE_ANNOTATIONS:
            annotations, annotation_count, scheduled_for = _read_annotations(data[section.value : section.end])
    if len(properties) == 0 or properties[_MESSAGE_ID] == NULL:
        encoded_properties = _with_message_id(properties, message_id=new_id())
    session_id = decode_text(properties[_GROUP_ID]) if len(properties) > _GROUP_ID else None
    return Content(
        header=header,
        annotations=annotations,
        annotation_count=annotation_count,
        sections=encoded_properties + data[kept:],
        time_to_live=time_to_live,
        scheduled_for=scheduled_for,
        session_id=session_id,
        ping=len(properties) > _CONTENT_TYPE and properties[_CONTENT_TYPE][2:] == PING_CONTENT_TYPE,
    )


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


def _within_calendar(milliseconds: int | None) -> int | None:
    return None if milliseconds is None else max(0, min(milliseconds, _END_OF_CALENDAR))


def _with_message_id(properties: list[bytes], *, message_id: str) -> bytes:
    fields = [encode_string(message_id), *properties[1:]]
    return _PROPERTIES_DESCRIPTOR + encode_compound(_LIST, body=b"".join(fields), count=len(fields))
