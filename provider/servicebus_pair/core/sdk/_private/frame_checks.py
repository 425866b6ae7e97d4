"""Checks the frames of a service before azure-servicebus (7.15) reckons with them.

The SDK believes the types of their fields: a wrong one causes an error later and elsewhere, which looks like one of
the message. It keeps what a transfer has beside its message, whatever the size, and allocates as many bytes as the head
of a frame announces, up to 4 GiB.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

_FRAME_HEADER_BYTES: Final = 8
# Ours announce 1 MiB.
_MAX_FRAME_BYTES: Final = 2**24

_TRANSFER: Final = 0x14
# Beside its payload: the fields of one are kept with the message, and take less than a hundred bytes.
_MAX_TRANSFER_BYTES: Final = 1024

# By performative, the type of each field (AMQP 1.0, section 2.7); a capital where it must be there:
# b boolean, e error, l ulong, u uint, y binary, string or symbol, - any.
_FIELDS: Final = {
    0x10: "--uuu",  # open
    0x11: "uUUUu",  # begin
    0x12: "YUB------ul",  # attach
    0x13: "uUUUuuu",  # flow
    0x14: "Uuyubb",  # transfer
    0x15: "BUub",  # disposition
    0x16: "Ube",  # detach
    0x17: "e",  # end
    0x18: "e",  # close
}
_LARGEST: Final = {"u": 2**32 - 1, "l": 2**64 - 1}

Frame = tuple[int, Any]


@cache
def limit_frames() -> None:
    """Check each frame that the SDK reads; done once per process."""
    from azure.servicebus._pyamqp.aio import _transport_async

    transport: Any = _transport_async
    transport.decode_frame = checked(transport.decode_frame)
    # What it calls for the rest of a frame, once it knows that this is one.
    transport.bytearray = _buffer


def check_frame_size(size: int) -> None:
    """Check the size that a frame announces. :raises ConnectionAbortedError: it is impossible."""
    if not _FRAME_HEADER_BYTES <= size <= _MAX_FRAME_BYTES:
        raise ConnectionAbortedError(f"the service sent a frame of {size} bytes")


def _buffer(size: int) -> bytearray:
    # Of a frame's header, or of what follows it.
    if not 0 <= size <= _MAX_FRAME_BYTES - _FRAME_HEADER_BYTES:
        check_frame_size(_FRAME_HEADER_BYTES + size)
    return bytearray(size)


def checked(decode: Callable[[Any], Frame]) -> Callable[[Any], Frame]:
    """Return the SDK's decoder of frames, which then ends the connection for a frame that it cannot be.

    :param decode: that of the SDK.
    """

    def decode_checked(data: Any) -> Frame:
        try:
            code, fields = decode(data)
        except Exception as error:
            raise ConnectionAbortedError(f"the service sent a frame that cannot be decoded: {error!r}") from error
        for index, (kind, value) in enumerate(zip(_FIELDS.get(code, ""), fields, strict=False)):
            if kind != "-" and not (kind.islower() if value is None else _is(kind.lower(), value)):
                raise ConnectionAbortedError(f"the service sent a frame 0x{code:02x} with an impossible field {index}")
        if code == _TRANSFER and (size := len(data) - len(fields[-1])) > _MAX_TRANSFER_BYTES:
            raise ConnectionAbortedError(f"the service sent a transfer with {size} bytes of fields")
        return code, fields

    return decode_checked


def _is(kind: str, value: Any) -> bool:
    match kind:
        case "b":
            return isinstance(value, bool)
        case "e":
            if not isinstance(value, list) or not value or not isinstance(value[0], bytes):
                return False
            return isinstance(value[1], bytes | None) if len(value) > 1 else True  # the description
        case "y":
            return isinstance(value, bytes)
        case _:
            return type(value) is int and 0 <= value <= _LARGEST[kind]
