"""The sections of an encoded message (AMQP 1.0 part 3, section 3.2)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, TypeAlias

from servicebus_emulator.amqp.codec.raw_encoding import MalformedValueError, decode_integer, value_end
from servicebus_emulator.engine.model.errors import MessageTooLarge


class SectionCode(IntEnum):
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


Section: TypeAlias = tuple[int, int, int, int]
"""The descriptor code of a section, its start, the start of its value, and its end.

A plain tuple for speed: several are created for each incoming message.
"""

_SHORT_DESCRIPTORS: Final = {bytes((0x00, 0x53, code)): int(code) for code in SectionCode}
_DESCRIPTOR_BYTES: Final = 3
_APPLICATION_PROPERTIES: Final = int(SectionCode.APPLICATION_PROPERTIES)
_REPEATABLE: Final = frozenset({int(SectionCode.DATA), int(SectionCode.SEQUENCE)})
# More messages than in any batch.
_MAX_SECTIONS: Final = 100_000

MAX_PROPERTIES_BYTES: Final = 64 * 1024
"""How long the application properties of a message may be, encoded."""

_SHORT_BINARY, _BINARY = 0xA0, 0xB0


def sections(data: bytes) -> list[Section]:
    """Return the sections of an encoded message, in order.

    :raises MalformedValueError: when the bytes are not a sequence of message sections.
    """
    found: list[Section] = []
    position, length = 0, len(data)
    while position < length:
        value = position + _DESCRIPTOR_BYTES
        code = _SHORT_DESCRIPTORS.get(data[position:value])
        if code is None:
            code, value = _long_descriptor(data, position)
        end = value_end(data, value)
        found.append((code, position, value, end))
        position = end
    return found


def received_sections(data: bytes) -> list[Section]:
    """Return the sections of what a client sent. While those of one client are decoded, the others wait.

    :raises MalformedValueError: see :func:`sections`; or when a large message has too many, or repeats one.
    :raises MessageTooLarge: when the application properties exceed 64 KB.
    """
    if len(data) <= MAX_PROPERTIES_BYTES:
        return sections(data)
    found: list[Section] = []
    seen: set[int] = set()
    position = 0
    while position < len(data):
        each = code, _, value, position = _section_at(data, position)
        if code in seen or len(found) == _MAX_SECTIONS:
            raise MalformedValueError(f"there are several sections {SectionCode(code).name}, or {_MAX_SECTIONS} of all")
        if code not in _REPEATABLE:
            seen.add(code)
        if code == _APPLICATION_PROPERTIES and position - value > MAX_PROPERTIES_BYTES:
            raise MessageTooLarge(
                f"the application properties have {position - value} bytes, which exceeds the limit "
                f"({MAX_PROPERTIES_BYTES}) currently allowed"
            )
        found.append(each)
    return found


def _section_at(data: bytes, position: int) -> Section:
    value = position + _DESCRIPTOR_BYTES
    code = _SHORT_DESCRIPTORS.get(data[position:value])
    if code is None:
        code, value = _long_descriptor(data, position)
    return code, position, value, value_end(data, value)


def encode_section(code: SectionCode, value: bytes) -> bytes:
    """Encode a section with an encoded value."""
    return bytes((0x00, 0x53, code)) + value


def _long_descriptor(data: bytes, position: int) -> tuple[int, int]:
    if data[position] != 0:
        raise MalformedValueError(f"no section starts at byte {position}")
    value = value_end(data, position + 1)
    code = decode_integer(data[position + 1 : value])
    if code is None or not SectionCode.HEADER <= code <= SectionCode.FOOTER:
        raise MalformedValueError(f"descriptor {code} at byte {position} is not a message section")
    return code, value


def data_section_body(data: bytes, value: int, end: int) -> bytes:
    """Return the content of a data section.

    :param value: the start of the section's value.
    :param end: its end.
    :raises MalformedValueError: when the value is not binary.
    """
    constructor = data[value]
    if constructor == _SHORT_BINARY:
        return data[value + 2 : end]
    if constructor == _BINARY:
        return data[value + 5 : end]
    raise MalformedValueError(f"a data section has constructor 0x{constructor:02x}; allowed: binary")
