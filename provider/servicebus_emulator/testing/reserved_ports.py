"""Ports that stay one's own while nobody listens on them.

A socket that is bound and does not listen keeps its port from everybody who asks for any free port, outgoing
connections among them, and still lets connections be refused. Whoever asks for the very port may have it and listen,
if both sockets say ``SO_REUSEADDR`` (Linux's socket(7)). So a process can die and come back on its ports.
"""

from __future__ import annotations

import socket
import weakref
from contextlib import ExitStack
from typing import Final

__all__ = ["ReservedPorts"]

_TRIES: Final = 100


class ReservedPorts:
    """Holds several runs of consecutive ports, for as long as it exists.

    :param host: the address on which they are held.
    :param lengths: how long each run is.
    :ivar firsts: the first port of each run.
    :raises RuntimeError: when there are no such runs.
    """

    def __init__(self, host: str, *, lengths: tuple[int, ...]) -> None:
        held = ExitStack()
        weakref.finalize(self, held.close)
        self.firsts: Final = tuple(_hold_run(host, length=length, held=held) for length in lengths)


def _hold_run(host: str, *, length: int, held: ExitStack) -> int:
    for _ in range(_TRIES):
        with ExitStack() as run:
            try:
                first = run.enter_context(_bound(host, port=0)).getsockname()[1]
                for offset in range(1, length):
                    run.enter_context(_bound(host, port=first + offset))
            except (OSError, OverflowError):
                continue
            held.push(run.pop_all())
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
    """Fail if the very port is somebody's: with ``SO_REUSEADDR`` it could be held by two."""
    with socket.socket(bound.family) as asking:
        asking.bind((host, port))
