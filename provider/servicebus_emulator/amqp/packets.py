"""Packets that are lost: a socket filter has the kernel drop what arrives before it is acknowledged.

Linux takes a classic BPF program per socket (``SO_ATTACH_FILTER``, socket(7)), from anybody. One that returns 0 drops
each segment before TCP sees it: on a connection the peer's bytes go unacknowledged and are sent again until the peer
gives up; on a listening socket its SYNs go unanswered.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from typing import Final, Protocol

from servicebus_emulator.faults import FaultError, FaultKind

__all__ = ["check_can_lose", "lose_packets"]

# asm-generic/socket.h and linux/filter.h; Python has no names for them.
_SO_ATTACH_FILTER: Final = 26
_SO_DETACH_FILTER: Final = 27
_RETURN_NOTHING: Final = struct.pack("HBBI", 0x06, 0, 0, 0)


class Filtered(Protocol):
    """A socket, or asyncio's view of one."""

    def setsockopt(self, level: int, optname: int, value: bytes, /) -> None:
        """Set an option."""
        ...


def lose_packets(plain: Filtered, *, lost: bool) -> None:
    """Have the kernel drop what arrives at a socket, or take it in again.

    What the kernel had acknowledged already can still be read, and what is written is still sent.

    :raises OSError: when the system has no such filters.
    """
    if not lost:
        plain.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, struct.pack("i", 0))
        return
    program = ctypes.create_string_buffer(_RETURN_NOTHING)
    plain.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(program)))


def check_can_lose() -> None:
    """Check that this system can lose packets.

    :raises FaultError: when it cannot.
    """
    try:
        with socket.socket() as tried:
            lose_packets(tried, lost=True)
    except OSError as error:
        raise FaultError(
            "kind",
            value=FaultKind.DROP.value,
            allowed=f"on Linux, whose kernel drops packets by socket filter (here: {error}); freeze comes nearest",
        ) from error
