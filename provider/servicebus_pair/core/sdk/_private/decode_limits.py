"""Refuses AMQP arrays that decode to far more than their bytes, in azure-servicebus (7.15).

An element of some types has no bytes, and the SDK believes the number of elements up to 65,536: a message of 100 KB
with many such arrays becomes gigabytes of objects, and holds the event loop for minutes in every process that peeks or
receives it. Whoever may send a message could stop them all.
"""

# ruff: noqa: SLF001 - private members are what this module is about

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

MAX_ELEMENTS_WITHOUT_BYTES: Final = 16
"""How many null, true, false, 0 or empty lists an array may hold that writes them without any bytes."""
_ARRAY8: Final = 0xE0
_ARRAY32: Final = 0xF0
_DESCRIBED: Final = 0x00
_SHORT: Final = Struct(">BB")
_LONG: Final = Struct(">II")
# The bytes after the constructor of a descriptor: a symbol begins with its length.
_DESCRIPTOR_SIZES: Final = {0x44: 0, 0x53: 1, 0x80: 8}
_SYMBOL8: Final = 0xA3
# The constructors of types without bytes begin with this half byte.
_WITHOUT_BYTES: Final = 0x4

Decoder = Callable[..., Any]


def limit_arrays() -> None:
    """Check each array before the SDK decodes it; repeating this changes nothing."""
    from azure.servicebus._pyamqp import _decode

    decoders: Any = _decode._DECODE_BY_CONSTRUCTOR
    for constructor, header in ((_ARRAY8, _SHORT), (_ARRAY32, _LONG)):
        if not hasattr(decoders[constructor], "limited"):
            decoders[constructor] = _limited(decoders[constructor], header)


def _limited(decode: Decoder, header: Struct) -> Decoder:
    def decode_checked(buffer: memoryview, depth: int = 0) -> Any:
        _check(buffer, header)
        return decode(buffer, depth)

    decode_checked.limited = True  # type: ignore[attr-defined]  # so that it is not wrapped twice
    return decode_checked


def _check(buffer: memoryview, header: Struct) -> None:
    size, count = header.unpack_from(buffer)
    if count <= MAX_ELEMENTS_WITHOUT_BYTES:
        return
    # The size counts from after itself, so the count and all elements are within it.
    if count > size or size > len(buffer) - header.size // 2:
        raise ValueError(f"an AMQP array of {size} bytes says that it has {count} elements")
    constructor = buffer[header.size]
    if constructor == _DESCRIBED:
        constructor = buffer[_after_descriptor(buffer, header.size + 1)]
    if constructor >> 4 == _WITHOUT_BYTES:
        raise ValueError(
            f"an AMQP array has {count} elements without bytes; allowed: up to {MAX_ELEMENTS_WITHOUT_BYTES}"
        )


def _after_descriptor(buffer: memoryview, start: int) -> int:
    kind = buffer[start]
    if kind == _SYMBOL8:
        return start + 2 + buffer[start + 1]
    size = _DESCRIPTOR_SIZES.get(kind)
    if size is None:
        raise ValueError(f"an AMQP array has a descriptor of type 0x{kind:02x}; allowed: a number or a symbol")
    return start + 1 + size
