"""Rewrites the performatives that Proton writes: adds the trailing nulls that it omits, for clients that need them.

A sender may omit them (AMQP 1.0 part 1, section 1.4). azure-servicebus 7.11.0 to 7.14.3 look fields up by position all
the same and fail with an IndexError at the first ``open``; 7.15 fills the fields in.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from servicebus_emulator.amqp.codec.raw_encoding import NULL, compound_items, encode_compound, encode_list

_HEADER: Final = b"AMQP"
_FRAME_HEADER_BYTES: Final = 8
# The number of fields of each performative, by its code (AMQP 1.0 part 2, section 2.7).
_FIELDS: Final = {0x10: 10, 0x11: 8, 0x12: 14, 0x13: 11, 0x14: 11, 0x15: 6, 0x16: 3, 0x17: 1, 0x18: 1}
_LIST: Final = 0xC0
_ATTACH: Final = 0x12
_WITH_ERRORS: Final = frozenset({_ATTACH, 0x15, 0x16, 0x17, 0x18})
# Positions among the fields of an attach.
_MAX_MESSAGE_SIZE, _PROPERTIES = 10, 13
_MAX_BATCH_SIZE: Final = b"com.microsoft:max-message-batch-size"
_ERROR, _REJECTED = b"\x00\x53\x1d", b"\x00\x53\x25"
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
    """Rewrites the frames of one connection with all fields.

    :param sparse: whether to leave out what the service leaves out at times: the info of errors, as a null, and the
        maximum sizes in the answer to an attach.
    """

    __slots__ = ("_incomplete", "_sparse")

    def __init__(self, *, sparse: bool = False) -> None:
        self._incomplete = b""
        self._sparse = sparse

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
            parts.append(_rewritten(data[position : position + size], sparse=self._sparse))
            position += size
        self._incomplete = data[position:]
        return b"".join(parts)


def _rewritten(frame: bytes, *, sparse: bool) -> bytes:
    if len(frame) < _FRAME_HEADER_BYTES + 4 or frame.startswith(_HEADER):
        # A heartbeat, or the header of the protocol.
        return frame
    # Proton writes neither extended headers nor long descriptors.
    start, code = _FRAME_HEADER_BYTES + 3, frame[_FRAME_HEADER_BYTES + 2]
    if sparse and code in _WITH_ERRORS:
        return _sparse(frame, start=start, code=code)
    missing_from = _FIELDS.get(code, 0)
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


def _sparse(frame: bytes, *, start: int, code: int) -> bytes:
    """Return the frame of an attach, a disposition, a detach, an end or a close without what can be left out."""
    items = compound_items(frame[start:])
    items += [NULL] * (_FIELDS[code] - len(items))
    if code == _ATTACH:
        items[_MAX_MESSAGE_SIZE] = NULL
        if _MAX_BATCH_SIZE in items[_PROPERTIES]:
            items[_PROPERTIES] = NULL
    performative = frame[4:start] + encode_list([_without_info(each) for each in items])
    return (4 + len(performative)).to_bytes(4, "big") + performative


def _without_info(item: bytes) -> bytes:
    """Return a field with the info of the error that it is, or that a rejected outcome contains, replaced by null."""
    if item.startswith(_ERROR):
        fields = compound_items(item[len(_ERROR) :])
        return _ERROR + encode_list([*fields[:2], *[NULL] * (3 - len(fields[:2]))])
    if item.startswith(_REJECTED):
        return _REJECTED + encode_list([_without_info(each) for each in compound_items(item[len(_REJECTED) :])])
    return item
