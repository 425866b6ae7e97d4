"""Packet loss by socket filter: the kernel drops incoming segments before TCP acknowledges them.

Linux accepts a classic BPF program per socket (``SO_ATTACH_FILTER``, socket(7)) from unprivileged processes. A program
that returns 0 drops every segment: on a connection, the peer retransmits until it gives up; on a listening socket,
its SYN packets stay unanswered.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from contextlib import suppress
from typing import Final, Protocol

from servicebus_emulator.faults import FaultError, FaultKind

# From asm-generic/socket.h and linux/filter.h; Python has no names for them.
_SO_ATTACH_FILTER: Final = 26
_SO_DETACH_FILTER: Final = 27
_RETURN_ZERO: Final = struct.pack("HBBI", 0x06, 0, 0, 0)


class SocketLike(Protocol):
    """A socket, or the `TransportSocket` of asyncio."""

    def setsockopt(self, level: int, optname: int, value: bytes, /) -> None:
        """Set a socket option."""


def lose_packets(sock: SocketLike, *, lost: bool) -> None:
    """Start or stop dropping the segments that arrive at a socket.

    Bytes that the kernel has already acknowledged can still be read, and writes are still sent.

    :raises OSError: when the system has no socket filters.
    """
    if not lost:
        with suppress(FileNotFoundError):  # no filter is attached: the socket was bound anew meanwhile
            sock.setsockopt(socket.SOL_SOCKET, _SO_DETACH_FILTER, struct.pack("i", 0))
        return
    program = ctypes.create_string_buffer(_RETURN_ZERO)
    sock.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(program)))


def check_packet_loss_support() -> None:
    """Check that this system can drop packets by socket filter.

    :raises FaultError: when it cannot.
    """
    try:
        with socket.socket() as probe:
            lose_packets(probe, lost=True)
    except OSError as error:
        raise FaultError(
            "kind",
            value=FaultKind.DROP.value,
            allowed=f"on Linux, whose kernel drops packets by socket filter (here: {error}); freeze comes nearest",
        ) from error
