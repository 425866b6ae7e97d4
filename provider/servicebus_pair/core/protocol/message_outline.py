"""What an inspection needs to know of a message in a queue, read from its bytes. Pure.

Decoding a message into objects takes several times as long. What is unusual is left to the decoder, which decides
whether it can be read at all: values of rare types, bodies that are no data, and other forms of sections.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final, NamedTuple, TypeVar

from servicebus_pair.core.protocol.amqp_message import DIGEST_BYTES
from servicebus_pair.core.protocol.amqp_sections import (
    APPLICATION_PROPERTIES,
    BINARY,
    BODY,
    HEADER,
    MESSAGE_ANNOTATIONS,
    NULL,
    PROPERTIES,
    STRING,
    SYMBOL,
    split,
    text,
    value_end,
)
from servicebus_pair.core.protocol.backlog_properties import PATH
from servicebus_pair.core.protocol.encoded_message import (
    DECODING_ERRORS,
    GROUP_ID,
    MESSAGE_ID,
    PROPERTY_FIELDS,
    number_behind,
    read_number,
)
from servicebus_pair.core.protocol.relayed_message import ONLY_BROKER

_WIDE: Final = 0x10
# Numbers, times, UUIDs, texts and binaries: every decoder reads them, and none of their values is out of its range.
_PLAIN: Final = frozenset(
    (*range(0x40, 0x45), *range(0x50, 0x57), 0x60, 0x61, *range(0x70, 0x73), *range(0x80, 0x84), 0x98)
) | {constructor | wide for constructor in (BINARY, STRING, SYMBOL) for wide in (0, _WIDE)}
_TEXT: Final = (STRING, STRING | _WIDE, SYMBOL, SYMBOL | _WIDE)
_DATA: Final = (BINARY, BINARY | _WIDE)
_CONTENT_TYPE: Final = 6
_STATES: Final = range(3)
_NARROW_LIST: Final = b"\xc0"
_FIRST_FIELD: Final = 3
_POSITION: Final = tuple(text(name, constructor=SYMBOL) for name in ("x-opt-sequence-number", "x-opt-message-state"))
_BEFORE_BODY: Final = (HEADER, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES)
_SECTION: Final = b"\x00\x53"
# Sections that many messages share, remembered by their bytes.
_MAX_REMEMBERED: Final = 1024
_MAX_REMEMBERED_BYTES: Final = 512

ValueT = TypeVar("ValueT")


class _UnusualError(Exception):
    """The message has to be decoded."""


class MessageOutline(NamedTuple):
    """What is known of a message; its texts are ``None`` where it has none.

    :ivar state: the number by which the broker says what the message waits for.
    :ivar destination: of a message in the backlog.
    :ivar digest: as of ``body_digest``.
    """

    sequence_number: int
    state: int
    message_id: str | None
    session_id: str | None
    content_type: str | None
    destination: str
    digest: str


class OutlineReader:
    """Reads the outlines of encoded messages; remembers sections that many of them share."""

    def __init__(self) -> None:
        self._plain_headers: dict[bytes, None] = {}
        self._destinations: dict[bytes, str] = {b"": ""}
        # Session id and content type, by the end of the properties behind the message id.
        self._ends: dict[bytes, tuple[str | None, str | None]] = {}

    def read(self, data: bytes) -> MessageOutline | None:
        """Return the outline of a message as it was peeked; ``None`` if it has to be decoded."""
        try:
            return self._read(data)
        except (_UnusualError, *DECODING_ERRORS):
            return None

    def _read(self, data: bytes) -> MessageOutline:
        start, length = 0, len(data)
        sections = dict.fromkeys(_BEFORE_BODY, b"")
        while data[start : start + 2] == _SECTION and data[start + 2] < BODY:
            end = value_end(data, start + 3)
            if data[start + 2] not in sections:
                raise _UnusualError
            sections[data[start + 2]] = data[start + 3 : end]
            start = end
        digest = blake2b(digest_size=DIGEST_BYTES)
        if start == length:
            raise _UnusualError
        while start < length:
            if data[start : start + 2] != _SECTION or data[start + 2] != BODY or data[start + 3] not in _DATA:
                raise _UnusualError
            end = value_end(data, start + 3)
            digest.update(memoryview(data)[start + (8 if data[start + 3] & _WIDE else 5) : end])
            start = end
        self._check_header(sections[HEADER])
        number, state = _position(sections[MESSAGE_ANNOTATIONS])
        destination = self._destination(sections[APPLICATION_PROPERTIES])
        return MessageOutline(
            number, state, *self._properties(sections[PROPERTIES]), destination=destination, digest=digest.hexdigest()
        )

    def _properties(self, properties: bytes) -> tuple[str | None, str | None, str | None]:
        """Return message id, session id and content type."""
        behind_id = b""
        if properties[:1] == _NARROW_LIST:
            id_end = value_end(properties, _FIRST_FIELD)
            behind_id = properties[id_end:]
            if behind_id in self._ends:
                return _optional_text(properties[_FIRST_FIELD:id_end]), *self._ends[behind_id]
        fields = _plain_items(properties)
        fields += [NULL] * PROPERTY_FIELDS
        end = _optional_text(fields[GROUP_ID]), _optional_text(fields[_CONTENT_TYPE])
        if behind_id:
            _remember(self._ends, behind_id, end)
        return _optional_text(fields[MESSAGE_ID]), *end

    def _check_header(self, header: bytes) -> None:
        if header not in self._plain_headers:
            _plain_items(header)
            _remember(self._plain_headers, header, None)

    def _destination(self, properties: bytes) -> str:
        found = self._destinations.get(properties)
        if found is None:
            items = _plain_items(properties)
            names = {_text(name): value for name, value in zip(items[::2], items[1::2], strict=True)}
            found = _text(names[PATH]) if PATH in names else ""
            _remember(self._destinations, properties, found)
        return found


def _remember(known: dict[bytes, ValueT], section: bytes, value: ValueT) -> None:
    if len(section) <= _MAX_REMEMBERED_BYTES and len(known) < _MAX_REMEMBERED:
        known[section] = value


def _plain_items(compound: bytes) -> list[bytes]:
    items = split(compound) if compound else []
    if not _PLAIN.issuperset([item[0] for item in items]):
        raise _UnusualError
    return items


def _position(annotations: bytes) -> tuple[int, int]:
    """Return sequence number and state."""
    if ONLY_BROKER.fullmatch(annotations):
        # One search each is much faster than to split the items, and the names are long.
        number, state = (number_behind(name, annotations) if name in annotations else 0 for name in _POSITION)
    else:
        items = _plain_items(annotations)
        found = dict(zip(items[::2], items[1::2], strict=True))
        number, state = (read_number(found[name]) if name in found else 0 for name in _POSITION)
    if number is None or state is None or state not in _STATES:
        raise _UnusualError
    return number, state


def _optional_text(value: bytes) -> str | None:
    return None if value == NULL else _text(value)


def _text(value: bytes) -> str:
    if value[0] not in _TEXT:
        raise _UnusualError
    return value[5 if value[0] & _WIDE else 2 :].decode()
