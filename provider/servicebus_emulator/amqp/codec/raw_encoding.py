"""Splits and builds encoded AMQP values without decoding them.

The high half of a constructor byte determines the length of its value (AMQP 1.0 part 1, section 1.2), so values of any
type, known or not, can be skipped and copied byte for byte.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from struct import Struct
from typing import Final

NULL = b"\x40"
MAX_ITEMS: Final = 250_000
"""How many items a list or map may have: while one client's are decoded, the others wait."""

_DESCRIBED = 0x00
# Value lengths in bytes, including the constructor, by the high half of the constructor.
_FIXED_SIZE = {0x4: 1, 0x5: 2, 0x6: 3, 0x7: 5, 0x8: 9, 0x9: 17}
_ONE_BYTE_SIZE, _FOUR_BYTE_SIZE, _OTHER = -1, -2, -3
_BY_HALF = {
    **_FIXED_SIZE,
    **dict.fromkeys((0xA, 0xC, 0xE), _ONE_BYTE_SIZE),
    **dict.fromkeys((0xB, 0xD, 0xF), _FOUR_BYTE_SIZE),
}
# A table for speed: several values are measured for each incoming message.
_SIZES: Final = tuple(_BY_HALF.get(constructor >> 4, _OTHER) for constructor in range(256))
_MAX_DESCRIPTORS = 8
_EMPTY_LIST = 0x45
_SHORTEST_DESCRIBED = 3
_SMALL_COMPOUND = {0xC0: True, 0xC1: True, 0xD0: False, 0xD1: False}
_TEXT_WIDTH = {0xA1: 1, 0xA3: 1, 0xB1: 4, 0xB3: 4}
_UNSIGNED = {0x50: 1, 0x52: 1, 0x53: 1, 0x60: 2, 0x70: 4, 0x80: 8}
_SIGNED = {0x51: 1, 0x54: 1, 0x55: 1, 0x61: 2, 0x71: 4, 0x81: 8, 0x83: 8}
_ZERO = frozenset({0x43, 0x44})
_BYTE_LIMIT = 256

_long = Struct(">Bq").pack
_uint = Struct(">BI").pack
_sizes = Struct(">BII").pack
_size = Struct(">BI").pack
_read_uint: Callable[[bytes, int], tuple[int]] = Struct(">I").unpack_from


class MalformedValueError(ValueError):
    """Bytes that are not an AMQP value, or end too early."""


def value_end(data: bytes, position: int) -> int:
    """Return the end of the value that starts at `position`.

    :raises MalformedValueError: when it has an unknown type or exceeds the data.
    """
    try:
        size = _SIZES[data[position]]
        if size > 0:
            end = position + size
        elif size == _ONE_BYTE_SIZE:
            end = position + 2 + data[position + 1]
        elif size == _FOUR_BYTE_SIZE:
            end = position + 5 + _read_uint(data, position + 1)[0]
        else:
            return _described_end(data, position)
    except (IndexError, struct.error):
        raise MalformedValueError(f"the value at byte {position} is cut off") from None
    if end > len(data):
        raise MalformedValueError(f"the value at byte {position} runs {end - len(data)} bytes over the end")
    return end


def _described_end(data: bytes, position: int) -> int:
    """Return the end of a value with one or more descriptors, none of which is itself described."""
    for _ in range(_MAX_DESCRIPTORS):
        if data[position] != _DESCRIBED:
            break
        position = _undescribed_end(data, position + 1)
    return _undescribed_end(data, position)


def _undescribed_end(data: bytes, position: int) -> int:
    if _SIZES[data[position]] == _OTHER:
        raise MalformedValueError(f"constructor 0x{data[position]:02x} at byte {position} is not an AMQP type")
    return value_end(data, position)


def compound_items(data: bytes) -> list[bytes]:
    """Return the encoded items of a list, or the alternating keys and values of a map.

    :raises MalformedValueError: when the value is neither, or its count is wrong.
    """
    if data[0] == _EMPTY_LIST:
        return []
    small = _SMALL_COMPOUND.get(data[0])
    if small is None:
        raise MalformedValueError(f"constructor 0x{data[0]:02x} where a list or map is expected")
    position = 3 if small else 9
    if len(data) < position:
        raise MalformedValueError("a list or map without a count")
    count = data[2] if small else int.from_bytes(data[5:9], "big")
    if count > MAX_ITEMS:
        raise MalformedValueError(f"a list or map announces {count} items; allowed: {MAX_ITEMS}")
    items = encoded_items(data, position, most=count)
    if len(items) != count:
        raise MalformedValueError(f"a list or map announces {count} items but contains {len(items)}")
    return items


def described_value(data: bytes) -> tuple[int | str | None, bytes]:
    """Return the descriptor of a described value, a code or a symbol, and the encoded value without it.

    :raises MalformedValueError: when the value has no descriptor.
    """
    if data[:1] != bytes((_DESCRIBED,)) or len(data) < _SHORTEST_DESCRIBED:
        raise MalformedValueError("a value without a descriptor where one is expected")
    end = value_end(data, 1)
    descriptor = data[1:end]
    code = decode_integer(descriptor)
    return (decode_text(descriptor) if code is None else code), data[end : value_end(data, end)]


def encoded_items(data: bytes, position: int, *, most: int = MAX_ITEMS) -> list[bytes]:
    """Return the consecutive encoded values from `position` to the end.

    :param most: how many there may be.
    :raises MalformedValueError: when the bytes are not AMQP values, or too many.
    """
    items: list[bytes] = []
    while position < len(data):
        if len(items) == most:
            raise MalformedValueError(f"more than {most} items follow each other")
        end = value_end(data, position)
        items.append(data[position:end])
        position = end
    return items


def decode_text(data: bytes) -> str | None:
    """Decode a string or symbol; None for any other type.

    :raises MalformedValueError: when it is not UTF-8.
    """
    width = _TEXT_WIDTH.get(data[0])
    if width is None:
        return None
    try:
        return data[1 + width :].decode("utf-8")
    except UnicodeDecodeError as error:
        raise MalformedValueError(f"a string is not UTF-8: {error.reason} at byte {error.start}") from None


def decode_integer(data: bytes) -> int | None:
    """Decode an integer or timestamp; None for any other type."""
    constructor = data[0]
    if constructor in _ZERO:
        return 0
    if constructor in _UNSIGNED:
        return int.from_bytes(data[1:], "big")
    if constructor in _SIGNED:
        return int.from_bytes(data[1:], "big", signed=True)
    return None


def encode_compound(constructor: int, *, body: bytes, count: int) -> bytes:
    """Encode a list (constructor 0xc0) or map (0xc1) of `count` encoded items, in the short form if possible."""
    if len(body) + 1 < _BYTE_LIMIT and count < _BYTE_LIMIT:
        return bytes((constructor, len(body) + 1, count)) + body
    return _sizes(constructor + 0x10, len(body) + 4, count) + body


def encode_list(items: Collection[bytes]) -> bytes:
    """Encode a list of encoded items."""
    return encode_compound(0xC0, body=b"".join(items), count=len(items))


def encode_map(items: Collection[bytes]) -> bytes:
    """Encode a map of alternating encoded keys and values."""
    return encode_compound(0xC1, body=b"".join(items), count=len(items))


def encode_string(text: str) -> bytes:
    """Encode a string."""
    return _variable(0xA1, content=text.encode("utf-8"))


def encode_symbol(text: str) -> bytes:
    """Encode a symbol."""
    return _variable(0xA3, content=text.encode("ascii"))


def encode_long(value: int) -> bytes:
    """Encode a long."""
    return _long(0x81, value)


def encode_timestamp(milliseconds: int) -> bytes:
    """Encode a timestamp."""
    return _long(0x83, milliseconds)


def encode_uint(value: int) -> bytes:
    """Encode an unsigned int in its shortest form."""
    if value == 0:
        return b"\x43"
    return bytes((0x52, value)) if value < _BYTE_LIMIT else _uint(0x70, value)


def _variable(constructor: int, *, content: bytes) -> bytes:
    if len(content) < _BYTE_LIMIT:
        return bytes((constructor, len(content))) + content
    return _size(constructor + 0x10, len(content)) + content
