"""Turns the bytes of a backlog message into those of the message that its sender meant (SPEC section 4). Pure.

``backlog_message.unwrap`` does the same with decoded messages. Here the body is never read, and of the application
properties only the names. Nothing that remains is encoded again, so every AMQP type survives by itself and type notes
are not needed, except for decimals, which travel as text. What is unusual raises :class:`UnusualMessageError` and is
left to ``unwrap``: decimals, time spans of the .NET original, aliases that cannot be delivered, and forms of sections
that are not expected here.
"""

from __future__ import annotations

import re
import struct
from datetime import timedelta
from typing import Final, NamedTuple

from servicebus_pair.core.protocol.amqp_message import MAX_TIME_TO_LIVE, SCHEDULED_TIME, TIMESTAMPS
from servicebus_pair.core.protocol.amqp_sections import (
    APPLICATION_PROPERTIES,
    BODY,
    HEADER,
    MESSAGE_ANNOTATIONS,
    NULL,
    PROPERTIES,
    STRING,
    SYMBOL,
    join_list,
    join_map,
    section,
    split,
    text,
    text_of,
    timestamp,
    uint,
    value_end,
)
from servicebus_pair.core.protocol.backlog_message import BROKER_ANNOTATIONS
from servicebus_pair.core.protocol.backlog_properties import (
    ESCAPE_PREFIX,
    MAX_TIME_SPAN_MILLISECONDS,
    PATH,
    SCHEDULED,
    SESSION_ID,
    TIME_TO_LIVE,
    TYPE_NOTES,
    names_entity,
)
from servicebus_pair.core.protocol.encoded_message import (
    DECODING_ERRORS,
    GROUP_ID,
    MESSAGE_ID,
    PARTITION_NAME,
    PROPERTY_FIELDS,
    SECTION_PREFIX,
)
from servicebus_pair.core.protocol.iso_duration import parse_duration

_MILLISECOND: Final = timedelta(milliseconds=1)
# The latest time that the SDK writes, in milliseconds since the Unix epoch.
_LAST_EXPIRY: Final = 253_402_243_199_000
# Fields of the header and of the properties, by position (AMQP 1.0, sections 3.2.1 and 3.2.4).
_PRIORITY: Final = 1
_HEADER_FIELDS: Final = 5
_EXPIRY, _CREATION = 8, 9
_NARROW_LIST: Final = b"\xc0"
_FIRST_FIELD: Final = 3
_PROPERTIES_PREFIX: Final = section(PROPERTIES, b"")
# The bit of a constructor whose size takes four bytes.
_WIDE: Final = 0x10
_TEXT: Final = (STRING, STRING | _WIDE)
_TIMESTAMP: Final = 0x83
_SCHEDULED_NAME: Final = text(SCHEDULED_TIME, constructor=SYMBOL)
_BROKER_NAMES: Final = frozenset(text(name, constructor=SYMBOL) for name in BROKER_ANNOTATIONS)
# Nearly all messages have no other annotations than these, or none: one match, and nothing to split.
ONLY_BROKER: Final = re.compile(
    b"(?:(?:\xc1..|\xd1.{8})(?:(?:"
    + b"|".join(map(re.escape, sorted(_BROKER_NAMES)))
    + b")(?:[\x80\x81\x83].{8}|[\x70\x71].{4}|[\x54\x55].|[\x60\x61]..|[\x43-\x45]))*)?",
    re.DOTALL,
)
# Parts of messages that one sender repeats, remembered by their bytes.
_MAX_REMEMBERED: Final = 1024
_MAX_REMEMBERED_BYTES: Final = 512
_read_long: Final = struct.Struct(">q").unpack_from


class UnusualMessageError(Exception):
    """The message has to be decoded to be restored, or to find out that it cannot be."""


class RelayedMessage:
    """An encoded message, with what has to be known of it to send it; equal to itself only.

    :param message_id: as text.
    """

    __slots__ = ("encoded", "message_id", "partition_key", "session_id")

    def __init__(
        self, encoded: bytes, message_id: str, *, session_id: str | None = None, partition_key: str | None = None
    ) -> None:
        self.encoded = encoded
        self.message_id = message_id
        self.session_id = session_id
        self.partition_key = partition_key


class _Carried(NamedTuple):
    """What the application properties of a backlog message say; times are milliseconds."""

    entity: str
    session_id: str | None
    has_time_to_live: bool
    time_to_live: int | None
    scheduled: int | None
    own: bytes


class BacklogRewriter:
    """Restores encoded backlog messages; remembers parts that many of them share.

    :param elapses: leave messages with a time to live to the caller, who subtracts what has elapsed.
    """

    def __init__(self, *, elapses: bool = False) -> None:
        self._elapses = elapses
        self._carried: dict[bytes, _Carried] = {}
        self._headers: dict[tuple[bytes, int | None], bytes] = {}
        # Ends of properties sections, behind the message id, that have neither expiry time nor session id.
        self._plain_ends: set[bytes] = set()

    def restore(self, data: bytes, *, now: float) -> tuple[str, RelayedMessage]:
        """Return the destination entity and the original of a backlog message.

        :param data: as received.
        :param now: seconds since the Unix epoch; a scheduled time before it is removed.
        :raises UnusualMessageError: the message has to be decoded. Nothing else is raised.
        """
        try:
            return self._restore(data, now)
        except DECODING_ERRORS as error:
            raise UnusualMessageError(str(error)) from error

    def _restore(self, data: bytes, now: float) -> tuple[str, RelayedMessage]:
        start, length = 0, len(data)
        sections = {HEADER: b"", MESSAGE_ANNOTATIONS: b"", PROPERTIES: b"", APPLICATION_PROPERTIES: b""}
        while start < length:
            if data[start : start + 2] != SECTION_PREFIX:
                raise UnusualMessageError("a section begins in another form")
            descriptor = data[start + 2]
            if descriptor >= BODY:
                break
            end = value_end(data, start + 3)
            sections[descriptor] = data[start + 3 : end]
            start = end
        properties = sections[APPLICATION_PROPERTIES]
        carried = self._carried.get(properties) or self._read_carried(properties)
        if carried.has_time_to_live and self._elapses:
            raise UnusualMessageError("its time to live may have ended")
        life, session_id = carried.time_to_live, carried.session_id
        annotations, partition_key = self._annotations(sections[MESSAGE_ANNOTATIONS], carried.scheduled, now)
        standard, message_id = self._properties(sections[PROPERTIES], session_id, life, now)
        encoded = b"".join(
            (self._header(sections[HEADER], life), annotations, standard, carried.own, data[start:] if start else data)
        )
        return carried.entity, RelayedMessage(encoded, message_id, session_id=session_id, partition_key=partition_key)

    def _read_carried(self, properties: bytes) -> _Carried:
        own: list[bytes] = []
        aliases: dict[str, bytes] = {}
        items = split(properties) if properties else []
        for encoded_name, value in zip(items[::2], items[1::2], strict=True):
            if encoded_name[0] not in _TEXT:
                raise UnusualMessageError("the name of an application property is no string")
            name = encoded_name[5 if encoded_name[0] & _WIDE else 2 :].decode()
            if name in (PATH, SESSION_ID, TIME_TO_LIVE, SCHEDULED, TYPE_NOTES):
                aliases[name] = value
            else:
                own += (text(name.removeprefix(ESCAPE_PREFIX)) if name.startswith(ESCAPE_PREFIX) else encoded_name,)
                own.append(value)
        if b"DECIMAL" in aliases.get(TYPE_NOTES, b""):
            raise UnusualMessageError("decimals travel as text")
        carried = _Carried(
            entity=_entity(aliases.get(PATH)),
            session_id=_text_alias(aliases.get(SESSION_ID)),
            has_time_to_live=TIME_TO_LIVE in aliases,
            time_to_live=_time_to_live(_text_alias(aliases.get(TIME_TO_LIVE))),
            scheduled=_time_alias(aliases.get(SCHEDULED)),
            own=section(APPLICATION_PROPERTIES, join_map(own)) if own else b"",
        )
        if len(properties) <= _MAX_REMEMBERED_BYTES:
            if len(self._carried) >= _MAX_REMEMBERED:
                self._carried.clear()
            self._carried[properties] = carried
        return carried

    def _header(self, header: bytes, life: int | None) -> bytes:
        key = header, life
        if key not in self._headers:
            if len(self._headers) >= _MAX_REMEMBERED:
                self._headers.clear()
            kept = split(header)[: _PRIORITY + 1] if header else []
            kept += [NULL] * (_HEADER_FIELDS - len(kept))
            if life is not None:
                kept[_PRIORITY + 1] = uint(life)
            is_empty = kept == [NULL] * _HEADER_FIELDS
            self._headers[key] = b"" if is_empty else section(HEADER, join_list(kept))
        return self._headers[key]

    def _annotations(self, annotations: bytes, scheduled: int | None, now: float) -> tuple[bytes, str | None]:
        kept: list[bytes] = []
        partition_key: str | None = None
        if not ONLY_BROKER.fullmatch(annotations):
            items = split(annotations)
            for name, value in zip(items[::2], items[1::2], strict=True):
                if name in _BROKER_NAMES:
                    continue
                if name == PARTITION_NAME:
                    partition_key = _text_alias(value)
                kept += (name, value)
        if scheduled is not None and scheduled / 1000 > now:
            kept += (_SCHEDULED_NAME, timestamp(scheduled))
        return section(MESSAGE_ANNOTATIONS, join_map(kept)) if kept else b"", partition_key

    def _properties(self, properties: bytes, session_id: str | None, life: int | None, now: float) -> tuple[bytes, str]:
        behind_id = b""
        if session_id is None and life is None and properties[:1] == _NARROW_LIST:
            id_end = value_end(properties, _FIRST_FIELD)
            behind_id = properties[id_end:]
            if behind_id in self._plain_ends:
                return _PROPERTIES_PREFIX + properties, _id_text(properties[_FIRST_FIELD:id_end])
        fields = split(properties) if properties else []
        is_plain = len(fields) == PROPERTY_FIELDS and fields[_EXPIRY] == fields[GROUP_ID] == NULL
        if behind_id and is_plain and len(self._plain_ends) < _MAX_REMEMBERED:
            self._plain_ends.add(behind_id)
        fields += [NULL] * (PROPERTY_FIELDS - len(fields))
        message_id = _id_text(fields[MESSAGE_ID])
        fields[_EXPIRY] = NULL
        if session_id is not None:
            fields[GROUP_ID] = text(session_id)
        if life:  # as the SDK does for every message with a time to live
            created = _created_at(now)
            fields[_CREATION] = timestamp(created)
            fields[_EXPIRY] = timestamp(min(created + life, _LAST_EXPIRY))
        if all(field == NULL for field in fields):
            return b"", message_id
        return section(PROPERTIES, join_list(fields)), message_id


def _id_text(value: bytes) -> str:
    """Return a message id as text, as in the records of decoded messages; an empty id is one."""
    found = text_of(value)
    return "None" if found is None else found


def _created_at(now: float) -> int:
    """Return the time of creation that the SDK writes, in milliseconds: a whole second."""
    return int(now) * 1000


def _entity(path: bytes | None) -> str:
    entity = _text_alias(path)
    if entity is None or not names_entity(entity):
        raise UnusualMessageError("it names no entity")
    return entity


def _text_alias(value: bytes | None) -> str | None:
    if value is None:
        return None
    if value[0] not in _TEXT:
        raise UnusualMessageError("an alias is no string")
    return value[5 if value[0] & _WIDE else 2 :].decode()


def _time_alias(value: bytes | None) -> int | None:
    if value is None:
        return None
    if value[0] != _TIMESTAMP:
        raise UnusualMessageError("a time is no timestamp")
    milliseconds: int
    (milliseconds,) = _read_long(value, 1)
    if milliseconds not in TIMESTAMPS:
        raise UnusualMessageError("a time is out of range")
    return milliseconds


def _time_to_live(duration: str | None) -> int | None:
    if duration is None:
        return None
    milliseconds = parse_duration(duration) // _MILLISECOND
    return None if milliseconds >= MAX_TIME_SPAN_MILLISECONDS else min(milliseconds, MAX_TIME_TO_LIVE)
