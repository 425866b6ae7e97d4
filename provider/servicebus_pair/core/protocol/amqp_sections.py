"""Encoded AMQP 1.0 values and message sections (sections 1.6 and 3.2), split and joined without decoding them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final
from uuid import UUID

# Descriptors of sections; those of delivery annotations and of the footer are between and behind these.
HEADER: Final = 0x70
MESSAGE_ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
BODY: Final = 0x75
"""The first of three descriptors of bodies; smaller ones are of sections before the body."""

NULL: Final = b"\x40"
# Constructors for up to 255 bytes or items; those for more have one bit more.
BINARY: Final = 0xA0
STRING: Final = 0xA1
SYMBOL: Final = 0xA3
LIST: Final = 0xC0
MAP: Final = 0xC1
_ARRAY: Final = 0xE0
_WIDE: Final = 0x10
_EMPTY_LIST: Final = 0x45
_DESCRIBED: Final = 0
# Bytes of a value with its constructor, by the constructor's upper half; of larger ones, the size follows.
_BYTES_BY_CATEGORY: Final = {0x4: 1, 0x5: 2, 0x6: 3, 0x7: 5, 0x8: 9, 0x9: 17}
_BYTES: Final = tuple(_BYTES_BY_CATEGORY.get(constructor >> 4, 0) for constructor in range(256))
# Where the items of a list or map begin.
_FIRST_ITEM: Final = {LIST: 3, MAP: 3, LIST | _WIDE: 9, MAP | _WIDE: 9, _EMPTY_LIST: 1}
_FIRST_CHARACTER: Final = {**dict.fromkeys((0xA0, 0xA1, 0xA3), 2), **dict.fromkeys((0xB0, 0xB1, 0xB3), 5)}
_UINT: Final = Struct(">BI").pack
_COMPOUND: Final = Struct(">BII").pack
_TIMESTAMP: Final = Struct(">Bq").pack
_read_size: Final = Struct(">I").unpack_from
_NARROW_LIMIT: Final = 256


def value_end(data: bytes | memoryview, start: int) -> int:
    """Return where the value ends that begins at ``start``.

    :raises ValueError, IndexError, struct.error: no value begins there, or it is truncated.
    """
    size = _BYTES[data[start]]
    if size:
        end = start + size
    elif data[start] >= BINARY:
        end = start + (5 + _read_size(data, start + 1)[0] if data[start] & _WIDE else 2 + data[start + 1])
    elif data[start] == _DESCRIBED:
        described = start
        while data[described] == _DESCRIBED:
            if data[described + 1] == _DESCRIBED:
                raise ValueError(f"no AMQP descriptor begins at byte {described + 1}")
            described = value_end(data, described + 1)
        end = value_end(data, described)
    else:
        raise ValueError(f"no AMQP value begins at byte {start}")
    if end > len(data):
        raise ValueError(f"the AMQP value that begins at byte {start} is truncated")
    return end


def split(compound: bytes) -> list[bytes]:
    """Return the encoded items of a list or map. :raises ValueError, IndexError, struct.error: it is neither."""
    start = _FIRST_ITEM.get(compound[0])
    if start is None:
        raise ValueError(f"constructor {compound[0]:#x} is neither of a list nor of a map")
    items: list[bytes] = []
    while start < len(compound):
        end = value_end(compound, start)
        items.append(compound[start:end])
        start = end
    return items


def count_values(data: bytes | memoryview, most: int) -> int:
    """Count the values of sections, those within lists and maps as well, until there are more than ``most``.

    An array counts as many as it has bytes.

    :raises ValueError, IndexError, struct.error: they are none, or a list or map ends elsewhere than its items.
    """
    count = 0
    waiting: list[tuple[int, int, int | None]] = [(0, len(data), None)]
    while waiting and count <= most:
        start, end, declared = waiting.pop()
        items = 0
        while start < end and count <= most:
            items, following = items + 1, value_end(data, start)
            while data[start] == _DESCRIBED:
                start = value_end(data, start + 1)
            constructor = data[start]
            count += following - start if constructor >= _ARRAY else 1
            if constructor in _FIRST_ITEM and constructor != _EMPTY_LIST:
                size = _read_size(data, start + 5)[0] if constructor & _WIDE else data[start + 2]
                waiting.append((start + _FIRST_ITEM[constructor], following, size))
            start = following
        if count <= most and (start != end or declared not in (None, items)):
            raise ValueError("an AMQP list or map does not end with its items")
    return count


def text_of(value: bytes) -> str | None:
    """Return an encoded id or text as text, which is not valid for every binary; ``None`` for another type."""
    constructor = value[0]
    start = _FIRST_CHARACTER.get(constructor)
    if start is not None:
        return value[start:].decode(errors="backslashreplace")
    if constructor == 0x98:  # noqa: PLR2004 - UUID
        return str(UUID(bytes=value[1:]))
    if constructor in (0x44, 0x53, 0x80):  # ULONG of 0, 1 and 8 bytes
        return str(int.from_bytes(value[1:], "big"))
    return None


def section(descriptor: int, value: bytes) -> bytes:
    """Return a message section."""
    return b"\x00\x53" + bytes((descriptor,)) + value


def join_list(items: Iterable[bytes]) -> bytes:
    """Return a list of encoded items."""
    return _join(LIST, list(items))


def join_map(items: Iterable[bytes]) -> bytes:
    """Return a map of encoded items: keys and values by turns."""
    return _join(MAP, list(items))


def _join(constructor: int, items: list[bytes]) -> bytes:
    content, count = b"".join(items), len(items)
    # The size field counts the count field, too.
    if len(content) + 1 < _NARROW_LIMIT:  # and so is the count, since each item has at least one byte
        return bytes((constructor, len(content) + 1, count)) + content
    return _COMPOUND(constructor | _WIDE, len(content) + 4, count) + content


def binary(content: bytes) -> bytes:
    """Return an encoded binary."""
    return _sized(BINARY, content)


def text(content: str, *, constructor: int = STRING) -> bytes:
    """Return an encoded string or symbol."""
    return _sized(constructor, content.encode())


def _sized(constructor: int, content: bytes) -> bytes:
    length = len(content)
    if length < _NARROW_LIMIT:
        return bytes((constructor, length)) + content
    return _UINT(constructor | _WIDE, length) + content


def timestamp(milliseconds: int) -> bytes:
    """Return an encoded timestamp, in milliseconds since the Unix epoch."""
    return _TIMESTAMP(0x83, milliseconds)


def uint(value: int) -> bytes:
    """Return an encoded unsigned integer of 32 bits, in the shortest form."""
    if value == 0:
        return b"\x43"
    return bytes((0x52, value)) if value < _NARROW_LIMIT else _UINT(0x70, value)
