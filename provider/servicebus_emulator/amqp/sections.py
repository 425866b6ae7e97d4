"""The sections of an encoded message (AMQP 1.0 part 3, section 3.2)."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from servicebus_emulator.amqp.encoding import MalformedValueError, decode_integer, value_end

__all__ = ["Code", "Section", "body_of_data", "sections"]


class Code(IntEnum):
    """The descriptor codes of the sections."""

    HEADER = 0x70
    DELIVERY_ANNOTATIONS = 0x71
    MESSAGE_ANNOTATIONS = 0x72
    PROPERTIES = 0x73
    APPLICATION_PROPERTIES = 0x74
    DATA = 0x75
    SEQUENCE = 0x76
    VALUE = 0x77
    FOOTER = 0x78


class Section(NamedTuple):
    """Where a section lies in the encoded message.

    :ivar value: where its value begins, behind the descriptor.
    """

    code: int
    start: int
    value: int
    end: int


_SMALL_ULONG = 0x53
_DESCRIPTOR_BYTES = 3
_SHORT_BINARY, _BINARY = 0xA0, 0xB0


def sections(data: bytes) -> Iterator[Section]:
    """Yield the sections of an encoded message.

    :raises MalformedValueError: when the bytes are not a sequence of sections.
    """
    position, length = 0, len(data)
    while position < length:
        if data[position] != 0 or position + _DESCRIPTOR_BYTES >= length:
            raise MalformedValueError(f"no section begins at byte {position}")
        if data[position + 1] == _SMALL_ULONG:
            code, value = data[position + 2], position + _DESCRIPTOR_BYTES
        else:
            value = value_end(data, position + 1)
            number = decode_integer(data[position + 1 : value])
            code = -1 if number is None else number
        if not Code.HEADER <= code <= Code.FOOTER:
            raise MalformedValueError(f"descriptor {code} at byte {position} is of no message section")
        end = value_end(data, value)
        yield Section(code, position, value, end)
        position = end


def body_of_data(data: bytes, section: Section) -> bytes:
    """Return the bytes that a data section holds.

    :raises MalformedValueError: when it does not hold binary.
    """
    constructor = data[section.value]
    if constructor == _SHORT_BINARY:
        return data[section.value + 2 : section.end]
    if constructor == _BINARY:
        return data[section.value + 5 : section.end]
    raise MalformedValueError(f"a data section holds constructor 0x{constructor:02x}; allowed: binary")
