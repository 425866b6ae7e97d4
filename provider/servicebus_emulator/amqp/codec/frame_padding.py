"""Adds the trailing null fields that Proton omits from performatives, for clients that cannot do without them.

A sender may omit them (AMQP 1.0 part 1, section 1.4). azure-servicebus 7.11.0 to 7.14.3 look fields up by position all
the same and fail with an IndexError at the first ``open``; 7.15 fills the fields in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from servicebus_emulator.amqp.codec.raw_encoding import NULL, encode_compound

__all__ = ["FramePadder", "needs_padding"]

_HEADER: Final = b"AMQP"
_FRAME_HEADER_BYTES: Final = 8
# The number of fields of each performative, by its code (AMQP 1.0 part 2, section 2.7).
_FIELDS: Final = {0x10: 10, 0x11: 8, 0x12: 14, 0x13: 11, 0x14: 11, 0x15: 6, 0x16: 3, 0x17: 1, 0x18: 1}
_LIST: Final = 0xC0
_PRODUCT: Final = "azsdk-python-servicebus"
_VERSION: Final = re.compile(r"(\d+)\.(\d+)\.")
_FIRST_FRAGILE, _FIRST_REPAIRED = (7, 11), (7, 15)


def needs_padding(properties: Mapping[str, object]) -> bool:
    """Return whether a client needs all fields, by the properties of its open frame.

    Older clients do not, and refuse a full frame that padding makes longer than the maximum.
    """
    version = _VERSION.match(str(properties.get("version")))
    if properties.get("product") != _PRODUCT or version is None:
        return False
    return _FIRST_FRAGILE <= (int(version[1]), int(version[2])) < _FIRST_REPAIRED


class FramePadder:
    """Pads the frames of one connection."""

    __slots__ = ("_incomplete",)

    def __init__(self) -> None:
        self._incomplete = b""

    def pad(self, data: bytes) -> bytes:
        """Return the frames that `data` completes, padded."""
        data = self._incomplete + data
        position = 0
        parts: list[bytes] = []
        while len(data) - position >= _FRAME_HEADER_BYTES:
            size = int.from_bytes(data[position : position + 4], "big")
            if data.startswith(_HEADER, position):
                size = _FRAME_HEADER_BYTES
            if len(data) - position < size:
                break
            parts.append(_padded(data[position : position + size]))
            position += size
        self._incomplete = data[position:]
        return b"".join(parts)


def _padded(frame: bytes) -> bytes:
    if len(frame) < _FRAME_HEADER_BYTES + 4 or frame.startswith(_HEADER):
        # A heartbeat, or the header of the protocol.
        return frame
    # Proton writes neither extended headers nor long descriptors.
    start, missing_from = _FRAME_HEADER_BYTES + 3, _FIELDS.get(frame[_FRAME_HEADER_BYTES + 2], 0)
    match frame[start]:
        case 0x45:
            count, items, end = 0, start + 1, start + 1
        case 0xC0:
            count, items, end = frame[start + 2], start + 3, start + 2 + frame[start + 1]
        case _:
            size, count = (int.from_bytes(frame[start + at : start + at + 4], "big") for at in (1, 5))
            items, end = start + 9, start + 5 + size
    if count >= missing_from:
        return frame
    body = frame[items:end] + NULL * (missing_from - count)
    performative = frame[4:start] + encode_compound(_LIST, body=body, count=missing_from)
    size = 4 + len(performative) + len(frame) - end
    return size.to_bytes(4, "big") + performative + frame[end:]
