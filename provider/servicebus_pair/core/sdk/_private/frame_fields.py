"""Checks the fields of the frames of a service before azure-servicebus (7.15) reckons with them.

The SDK believes their types: with another one an error comes up later and elsewhere, as one of the message or
of nobody's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

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
