"""Inspects the frames of one client before Proton does: repairs delivery ids, sets ranges and batches apart.

*Delivery ids of requests.* Threads of the Python client share one management link (its lock renewer runs a thread per
message) and send deliveries with equal or swapped delivery ids. The service answers them nevertheless, while Proton
enforces AMQP 1.0 part 2, section 2.7.5, and closes the connection. Only sessions with nothing but request links are
repaired: a response names its request by message id and every request is accepted, whereas a message to an entity would
be settled under the delivery id of another one.

*Dispositions of a range.* Proton reports the deliveries of a frame one by one, while a disposition that settles a range
is answered by one that does. Dispositions of single deliveries are answered one by one: each concurrent settlement of
the Python client waits for a frame, and for 0.2 s if a frame settles several of them.

*Batches.* Only the message format of a transfer says that it carries a batch, and Proton does not expose it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from servicebus_emulator.amqp.codec.raw_encoding import (
    NULL,
    MalformedValueError,
    compound_items,
    decode_integer,
    encode_list,
    encode_uint,
    value_end,
)
from servicebus_emulator.engine.model.errors import BrokerError

_read_size: Callable[[bytes, int], tuple[int]] = Struct(">I").unpack_from
_HEADER_BYTES: Final = 8
_PROTOCOL_HEADER: Final = b"AMQP"
_BEGIN, _ATTACH, _TRANSFER, _DISPOSITION, _END = 0x11, 0x12, 0x14, 0x15, 0x17
_INSPECTED: Final = frozenset({_BEGIN, _ATTACH, _TRANSFER, _DISPOSITION, _END})
_DESCRIPTOR_BYTES: Final = 3
_TRUE: Final = frozenset({b"\x41", b"\x56\x01"})
_REQUEST_NODES: Final = (b"$management", b"$cbs")
_DELIVERY_IDS: Final = 2**32
# The message format of a batch as an encoded uint, and where the fields of a transfer up to it end at the latest.
_BATCH_FORMAT: Final = b"\x70\x80\x01\x37\x00"
_TRANSFER_FIELDS_BYTES: Final = 80

# Positions of fields in the performatives' lists (AMQP 1.0 part 2, section 2.7).
_ATTACH_ROLE, _ATTACH_TARGET = 2, 6
_TRANSFER_HANDLE, _TRANSFER_ID, _TRANSFER_FORMAT, _TRANSFER_MORE = 0, 1, 3, 5
_DISPOSITION_ROLE, _DISPOSITION_FIRST, _DISPOSITION_LAST = 0, 1, 2

# A disposition of one delivery, with or without its id as the last one too: nearly all dispositions, and one call.
_one_disposition = re.compile(
    rb"\x00\x53\x15(?:\xc0..|\xd0.{8})(?:[\x41\x42]|\x56.)(\x43|\x52.|\x70.{4})(?:\x40|\1)", re.DOTALL
).match


@dataclass(slots=True)
class _Session:
    """The deliveries of one session.

    :ivar next_id: the id of the next delivery; None before the first.
    :ivar unfinished: the ids of incomplete deliveries by link handle.
    """

    only_requests: bool = True
    next_id: int | None = None
    unfinished: dict[bytes, int] = field(default_factory=dict)


class FrameUnreadable(BrokerError):  # noqa: N818 - broker errors are named after their condition
    """A frame cannot be decoded."""

    condition = "amqp:decode-error"


class IncomingFrames:
    """Passes on the bytes of one client in whole frames, with delivery ids in order.

    :param on_data: receives the bytes.
    :param on_range: receives the frame of a disposition by which the client settles several deliveries.
    :param on_batch: receives the first frame of a delivery that is a batch.
    :param max_frame_size: the maximum frame size in bytes; from a larger frame on, bytes pass unchanged.
    """

    def __init__(
        self,
        on_data: Callable[[bytes], None],
        *,
        on_range: Callable[[bytes], None],
        on_batch: Callable[[bytes], None],
        max_frame_size: int,
    ) -> None:
        self._on_data = on_data
        self._on_range = on_range
        self._on_batch = on_batch
        self._max_frame_size = max_frame_size
        self._incomplete = b""
        self._active = True
        self._sessions: dict[int, _Session] = {}

    def receive(self, data: bytes) -> None:
        """Receive bytes; pass on those that complete a frame."""
        if not self._active:
            self._on_data(data)
            return
        data = self._incomplete + data if len(self._incomplete) > 0 else data
        position, passed_to = 0, 0
        while len(data) - position >= _HEADER_BYTES:
            size = _read_size(data, position)[0]
            if not _HEADER_BYTES <= size <= self._max_frame_size:
                if not data.startswith(_PROTOCOL_HEADER, position):
                    self._active, position = False, len(data)
                    break
                size = _HEADER_BYTES
            end = position + size
            if end > len(data):
                break
            code_at = position + 4 * data[position + 4] + 2
            if code_at < end and data[code_at] in _INSPECTED and _one_disposition(data, code_at - 2, end) is None:
                frame = data[position:end]
                body = code_at - 2 - position
                special = self._special_receiver(frame, body=body)
                inspected = self._repair(frame, body=body)
                if special is not None or inspected is not frame:
                    self._pass_on(data[passed_to:position])
                    passed_to = end
                    (self._on_data if special is None else special)(inspected)
            position = end
        self._incomplete = data[position:]
        if passed_to == 0 and position == len(data):
            self._on_data(data)
        else:
            self._pass_on(data[passed_to:position])

    def _pass_on(self, data: bytes) -> None:
        if len(data) > 0:
            self._on_data(data)

    def _special_receiver(self, frame: bytes, *, body: int) -> Callable[[bytes], None] | None:
        code = frame[body + 2]
        if code == _DISPOSITION and _settles_range(frame, body=body):
            return self._on_range
        if code == _TRANSFER and frame.find(_BATCH_FORMAT, body, body + _TRANSFER_FIELDS_BYTES) >= 0:
            return self._on_batch if _is_batch(frame, body=body) else None
        return None

    def _repair(self, frame: bytes, *, body: int) -> bytes:
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
                _inspect_attach(session, items=_fields(frame, body=body)[0])
            elif code == _TRANSFER:
                return _repair_transfer(session, frame, body=body)
        except (MalformedValueError, IndexError):
            # Proton rejects malformed frames.
            pass
        return frame


def _fields(frame: bytes, *, body: int) -> tuple[list[bytes], int]:
    """Return the encoded fields of a performative, and where it ends."""
    end = value_end(frame, body + _DESCRIPTOR_BYTES)
    return compound_items(frame[body + _DESCRIPTOR_BYTES : end]), end


def _settles_range(frame: bytes, *, body: int) -> bool:
    """Return whether a disposition by a receiver settles several deliveries."""
    try:
        items, _ = _fields(frame, body=body)
    except (MalformedValueError, IndexError):
        return False
    return (
        len(items) > _DISPOSITION_LAST
        and items[_DISPOSITION_ROLE] in _TRUE
        and items[_DISPOSITION_LAST] not in {NULL, items[_DISPOSITION_FIRST]}
    )


def _is_batch(frame: bytes, *, body: int) -> bool:
    """Return whether a transfer has the message format of a batch."""
    try:
        items, _ = _fields(frame, body=body)
    except (MalformedValueError, IndexError):
        return False
    return len(items) > _TRANSFER_FORMAT and items[_TRANSFER_FORMAT] == _BATCH_FORMAT


def _inspect_attach(session: _Session, *, items: list[bytes]) -> None:
    receives = items[_ATTACH_ROLE] in _TRUE
    if not receives and not any(node in items[_ATTACH_TARGET] for node in _REQUEST_NODES):
        session.only_requests = False


def _repair_transfer(session: _Session, frame: bytes, *, body: int) -> bytes:
    items, end = _fields(frame, body=body)
    given = decode_integer(items[_TRANSFER_ID]) if len(items) > _TRANSFER_ID else None
    handle = items[_TRANSFER_HANDLE]
    if handle in session.unfinished:
        expected = session.unfinished.pop(handle)
    elif given is None:
        return frame
    else:
        expected = given if session.next_id is None else session.next_id
        session.next_id = (expected + 1) % _DELIVERY_IDS
    if len(items) > _TRANSFER_MORE and items[_TRANSFER_MORE] in _TRUE:
        session.unfinished[handle] = expected
    if given is None or given == expected:
        return frame
    items[_TRANSFER_ID] = encode_uint(expected)
    performative = frame[body : body + _DESCRIPTOR_BYTES] + encode_list(items)
    size = body + len(performative) + len(frame) - end
    return size.to_bytes(4, "big") + frame[4:body] + performative + frame[end:]
