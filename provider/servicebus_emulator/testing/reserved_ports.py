"""Ports that stay reserved while a process is down.

The kernel gives the port of a bound socket to no one who asks for any free port, and refuses connections to it while
the socket does not listen. Another process can still listen on the port if both sockets set ``SO_REUSEADDR`` (Linux's
socket(7)).
"""

from __future__ import annotations

import socket
import weakref
from contextlib import ExitStack
from typing import Final

_TRIES: Final = 100


class ReservedPorts:
    """Reserves several ranges of consecutive ports for as long as it exists.

    :param host: the address of the ports.
    :param lengths: the length of each range.
    :ivar firsts: the first port of each range.
    :raises RuntimeError: when no such range is free.
    """

    def __init__(self, host: str, *, lengths: tuple[int, ...]) -> None:
        reserved = ExitStack()
        weakref.finalize(self, reserved.close)
        self.firsts: Final = tuple(_reserve(host, length=length, reserved=reserved) for length in lengths)


def _reserve(host: str, *, length: int, reserved: ExitStack) -> int:
    for _ in range(_TRIES):
        with ExitStack() as run:
            try:
                first = run.enter_context(_bound(host, port=0)).getsockname()[1]
                for offset in range(1, length):
                    run.enter_context(_bound(host, port=first + offset))
            except (OSError, OverflowError):
                continue
            reserved.push(run.pop_all())
            return int(first)
    raise RuntimeError(f"no {length} consecutive ports are free on {host}")


def _bound(host: str, *, port: int) -> socket.socket:
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        if port != 0:
            _refuse_taken(bound, host=host, port=port)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except BaseException:
        bound.close()
        raise
    return bound


def _refuse_taken(bound: socket.socket, *, host: str, port: int) -> None:
    """Fail if the port is taken: with ``SO_REUSEADDR`` two sockets could bind it."""
    with socket.socket(bound.family) as asking:
        asking.bind((host, port))
