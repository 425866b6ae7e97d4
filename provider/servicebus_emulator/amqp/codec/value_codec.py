"""Converts between AMQP values and Python values, for requests and responses.

Messages are not converted: they stay encoded.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from uuid import UUID

from servicebus_emulator.amqp.codec.raw_encoding import (
    NULL,
    MalformedValueError,
    compound_items,
    decode_integer,
    decode_text,
    encode_list,
    encode_long,
    encode_map,
    encode_string,
    encode_symbol,
    encode_timestamp,
)


class Symbol(str):
    """A symbol; a plain ``str`` is a string."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970; a plain ``int`` is a long."""

    __slots__ = ()


class Int(int):
    """A 32-bit integer; a plain ``int`` is a long."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Array:
    """An array of UUIDs, timestamps, longs or strings."""

    items: tuple[UUID, ...] | tuple[Timestamp, ...] | tuple[int, ...] | tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Described:
    """A described value."""

    descriptor: int | Symbol
    value: Value


Value = None | bool | int | float | str | bytes | UUID | Array | Described | list["Value"] | dict["Value", "Value"]

_MAX_DEPTH = 16
_MAX_VALUES = 100_000
_LISTS = frozenset({0x45, 0xC0, 0xD0})
_MAPS = frozenset({0xC1, 0xD1})
_BOOLEANS = {0x41: True, 0x42: False}
_BOOLEAN = 0x56
_BINARY_HEAD = {0xA0: 2, 0xB0: 5}
_SMALL_ARRAY, _ARRAY = 0xE0, 0xF0
_UUID, _TIMESTAMP, _LONG = 0x98, 0x83, 0x81
_FLOAT, _DOUBLE, _ULONG = 0x72, 0x82, 0x80
_STRING = 0xB1
_UUID_BYTES = 16

_array_head = Struct(">BIIB").pack
_binary_head = Struct(">BI").pack
_int = Struct(">Bi").pack
_double = Struct(">Bd").pack
_ulong = Struct(">BQ").pack
_FLOATING = {_FLOAT: Struct(">f").unpack, _DOUBLE: Struct(">d").unpack}


def decode(data: bytes) -> Value:
    """Decode a value. Descriptors are dropped; a value of a type that requests do not use becomes None.

    :raises MalformedValueError: when the bytes are not a value, or are nested too deeply, or are too many values.
    """
    return _Decoder().decode(data, depth=0)


def encode(value: Value) -> bytes:
    """Encode a value.

    :raises TypeError: for an unsupported type.
    """
    if isinstance(value, list):
        return encode_list([encode(item) for item in value])
    if isinstance(value, dict):
        return encode_map([encode(each) for pair in value.items() for each in pair])
    if isinstance(value, Array):
        return _encode_array(value)
    if isinstance(value, Described):
        code = value.descriptor
        descriptor = encode_symbol(code) if isinstance(code, Symbol) else _ulong(_ULONG, code)
        return b"\x00" + descriptor + encode(value.value)
    if isinstance(value, int | float):
        return _encode_number(value)
    if isinstance(value, str):
        return encode_symbol(value) if isinstance(value, Symbol) else encode_string(value)
    if isinstance(value, bytes):
        return _binary_head(0xB0, len(value)) + value
    return NULL if value is None else bytes((_UUID,)) + value.bytes


class _Decoder:
    """Decodes one value with those in it, whose number is limited: while one client's are decoded, the others wait."""

    def __init__(self) -> None:
        self._left = _MAX_VALUES

    def decode(self, data: bytes, *, depth: int) -> Value:
        if depth > _MAX_DEPTH:
            raise MalformedValueError(f"values are nested deeper than {_MAX_DEPTH}")
        constructor = data[0]
        if constructor in _LISTS:
            return [self.decode(item, depth=depth + 1) for item in self._items(data)]
        if constructor in _MAPS:
            return self._map(data, depth=depth)
        if constructor in {_SMALL_ARRAY, _ARRAY}:
            return self._array(data, depth=depth)
        return _decode_scalar(data)

    def _spend(self, count: int) -> None:
        self._left -= count
        if self._left < 0:
            raise MalformedValueError(f"a request has more than {_MAX_VALUES} values")

    def _items(self, data: bytes) -> list[bytes]:
        items = compound_items(data)
        self._spend(len(items))
        return items

    def _map(self, data: bytes, *, depth: int) -> dict[Value, Value]:
        items = self._items(data)
        if len(items) % 2 != 0:
            raise MalformedValueError("a map contains a key without a value")
        decoded: dict[Value, Value] = {}
        for key, value in zip(items[::2], items[1::2], strict=True):
            name = _decode_scalar(key)
            if name is not None:
                decoded[name] = self.decode(value, depth=depth + 1)
        return decoded

    def _array(self, data: bytes, *, depth: int) -> list[Value]:
        small = data[0] == _SMALL_ARRAY
        start = 3 if small else 9
        if len(data) <= start:
            if len(data) == start:
                return []
            raise MalformedValueError("an array is cut off")
        count = data[2] if small else int.from_bytes(data[5:9], "big")
        constructor, body = data[start : start + 1], data[start + 1 :]
        if count == 0:
            return []
        width, rest = divmod(len(body), count)
        if rest != 0 or width == 0:
            # Items of variable length, such as strings; requests contain no such arrays.
            raise MalformedValueError(f"an array of {count} items has {len(body)} bytes; allowed: items of one length")
        self._spend(count)
        return [self.decode(constructor + body[at : at + width], depth=depth + 1) for at in range(0, len(body), width)]


def _decode_scalar(data: bytes) -> bool | int | float | str | bytes | UUID | None:
    constructor = data[0]
    if constructor in _FLOATING:
        return float(_FLOATING[constructor](data[1:])[0])
    if constructor in _BOOLEANS:
        return _BOOLEANS[constructor]
    if constructor == _UUID:
        if len(data) != 1 + _UUID_BYTES:
            raise MalformedValueError("a UUID does not have 16 bytes")
        return UUID(bytes=data[1:])
    if constructor in _BINARY_HEAD:
        return data[_BINARY_HEAD[constructor] :]
    if constructor == _BOOLEAN:
        return data[1] != 0
    number = decode_integer(data)
    if number is None:
        return decode_text(data)
    return Timestamp(number) if constructor == _TIMESTAMP else number


def _encode_number(value: float) -> bytes:
    match value:
        case bool():
            return b"\x41" if value else b"\x42"
        case Timestamp():
            return encode_timestamp(value)
        case Int():
            return _int(0x71, value)
        case int():
            return encode_long(value)
        case _:
            return _double(_DOUBLE, value)


def _encode_array(value: Array) -> bytes:
    constructor = _LONG
    body = bytearray()
    for item in value.items:
        encoded = _encode_long_string(item) if isinstance(item, str) else encode(item)
        constructor = encoded[0]
        body += encoded[1:]
    return _array_head(_ARRAY, len(body) + 5, len(value.items), constructor) + bytes(body)


def _encode_long_string(text: str) -> bytes:
    # The items of an array share one constructor, so the one for strings of any length is used.
    content = text.encode("utf-8")
    return _binary_head(_STRING, len(content)) + content
