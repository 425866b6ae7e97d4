"""Requests whose delivery ids are out of order, put in order before Proton sees them.

Threads of the Python client share one management link (its lock renewer has a thread per message), and then
send deliveries with the same id, or one id before its predecessor. The service answers them all the same;
Proton insists on AMQP 1.0 part 2, section 2.7.5, and ends the connection. Only sessions whose client sends
nothing but requests are treated so: an answer names its request by message id and every request is accepted,
while a message to an entity would be settled under the id of another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from servicebus_emulator.amqp.encoding import (
    MalformedValueError,
    compound_items,
    decode_integer,
    encode_compound,
    encode_uint,
    value_end,
)

__all__ = ["RequestOrder"]

_read_size: Callable[[bytes, int], tuple[int]] = Struct(">I").unpack_from
_HEADER: Final = 8
_GREETING: Final = b"AMQP"
_BEGIN, _ATTACH, _TRANSFER, _END = 0x11, 0x12, 0x14, 0x17
_WATCHED: Final = frozenset({_BEGIN, _ATTACH, _TRANSFER, _END})
_DESCRIPTOR: Final = 3
_LIST: Final = 0xC0
_TRUE: Final = frozenset({b"\x41", b"\x56\x01"})
_NODES: Final = (b"$management", b"$cbs")
_IDS: Final = 2**32

# Positions of fields in the performatives' lists (AMQP 1.0 part 2, section 2.7).
_ATTACH_ROLE, _ATTACH_TARGET = 2, 6
_TRANSFER_HANDLE, _TRANSFER_ID, _TRANSFER_MORE = 0, 1, 5


@dataclass(slots=True)
class _Session:
    """What the client sent in one session.

    :ivar following: the id of the next delivery; None before the first.
    :ivar unfinished: by link handle, the id of a delivery of which more is to come.
    """

    only_requests: bool = True
    following: int | None = None
    unfinished: dict[bytes, int] = field(default_factory=dict)


class RequestOrder:
    """Hands on what one client sends, in whole frames.

    :param feed: takes the bytes.
    :param max_frame_size: of the client's frames, in bytes; at a larger one this looks no further.
    """

    def __init__(self, feed: Callable[[bytes], None], *, max_frame_size: int) -> None:
        self._feed = feed
        self._max_frame_size = max_frame_size
        self._rest = b""
        self._looking = True
        self._sessions: dict[int, _Session] = {}

    def take(self, data: bytes) -> None:
        """Take in bytes, and hand on those that complete a frame."""
        if self._looking:
            data = self._whole_frames(self._rest + data if len(self._rest) > 0 else data)
        if len(data) > 0:
            self._feed(data)

    def _whole_frames(self, data: bytes) -> bytes:
        position, kept_from = 0, 0
        kept: list[bytes] = []
        while len(data) - position >= _HEADER:
            size = _read_size(data, position)[0]
            if data.startswith(_GREETING, position):
                size = _HEADER
            elif not _HEADER <= size <= self._max_frame_size:
                self._looking, self._rest = False, b""
                return b"".join((*kept, data[kept_from:]))
            end = position + size
            if end > len(data):
                break
            code_at = position + 4 * data[position + 4] + 2
            if code_at < end and data[code_at] in _WATCHED:
                frame = data[position:end]
                ordered = self._ordered(frame, body=code_at - 2 - position)
                if ordered is not frame:
                    kept += (data[kept_from:position], ordered)
                    kept_from = end
            position = end
        self._rest = data[position:]
        if position == len(data) and kept_from == 0:
            return data
        return b"".join((*kept, data[kept_from:position]))

    def _ordered(self, frame: bytes, *, body: int) -> bytes:
        channel = int.from_bytes(frame[6:8], "big")
        code = frame[body + 2]
        if code == _BEGIN:
            self._sessions[channel] = _Session()
        elif code == _END:
            self._sessions.pop(channel, None)
        session = self._sessions.get(channel)
        if session is None or not session.only_requests:
            return frame
        try:
            if code == _ATTACH:
                _note_link(session, items=_fields(frame, body=body)[0])
            elif code == _TRANSFER:
                return _ordered_transfer(session, frame, body=body)
        except (MalformedValueError, IndexError):
            # What is malformed, Proton refuses.
            pass
        return frame


def _fields(frame: bytes, *, body: int) -> tuple[list[bytes], int]:
    """Return the encoded fields of a performative, and where it ends."""
    end = value_end(frame, body + _DESCRIPTOR)
    return compound_items(frame[body + _DESCRIPTOR : end]), end


def _note_link(session: _Session, *, items: list[bytes]) -> None:
    receives = items[_ATTACH_ROLE] in _TRUE
    if not receives and not any(node in items[_ATTACH_TARGET] for node in _NODES):
        session.only_requests = False


def _ordered_transfer(session: _Session, frame: bytes, *, body: int) -> bytes:
    items, end = _fields(frame, body=body)
    given = decode_integer(items[_TRANSFER_ID]) if len(items) > _TRANSFER_ID else None
    handle = items[_TRANSFER_HANDLE]
    if handle in session.unfinished:
        expected = session.unfinished.pop(handle)
    elif given is None:
        return frame
    else:
        expected = given if session.following is None else session.following
        session.following = (expected + 1) % _IDS
    if len(items) > _TRANSFER_MORE and items[_TRANSFER_MORE] in _TRUE:
        session.unfinished[handle] = expected
    if given is None or given == expected:
        return frame
    items[_TRANSFER_ID] = encode_uint(expected)
    performative = frame[body : body + _DESCRIPTOR] + encode_compound(_LIST, body=b"".join(items), count=len(items))
    size = body + len(performative) + len(frame) - end
    return size.to_bytes(4, "big") + frame[4:body] + performative + frame[end:]
