"""The TCP port of a namespace, which can refuse connections for a while without losing it."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final, cast

from servicebus_emulator.amqp.arrival import Arrival, Door
from servicebus_emulator.amqp.packets import lose_packets

__all__ = ["Listener"]

_BACKLOG: Final = 4096
_ACCEPTED_AT_ONCE: Final = 256
_SECONDS_WITHOUT_DESCRIPTORS: Final = 0.5
_EXHAUSTED: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

_log = logging.getLogger(__name__)


class Listener:
    """Listens, or holds its port without listening, so that the kernel refuses connections.

    :param host: the address to listen on.
    :param port: the TCP port; 0 = any, which it then keeps.
    :param door: what becomes of those who connect.
    """

    def __init__(self, host: str, *, port: int, door: Door) -> None:
        self._host = host
        self._wanted = port
        self._door = door
        self._port: int | None = None
        self._places: list[tuple[socket.AddressFamily, object]] = []
        self._sockets: list[socket.socket] = []
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}
        self._losing = False

    @property
    def port(self) -> int | None:
        """The TCP port; None before it was ever opened."""
        return self._port

    async def open(self) -> None:
        """Listen.

        :raises OSError: when the port is taken, or the host has no address or none of this machine.
        """
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                self._host, self._wanted, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except socket.gaierror as error:
            reason = f"host {self._host!r} has no address: {error.strerror}; allowed: a name or address of this machine"
            raise OSError(error.errno, reason) from error
        places = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
        self._sockets = _bound_together(places)
        self._places = [(each.family, each.getsockname()) for each in self._sockets]
        self._port = int(self._places[0][1][1])  # type: ignore[index]
        self.listen_again()

    def refuse(self) -> None:
        """Refuse connections from now on. Those that there are stay."""
        self._give_back()
        self._sockets = [_bound(family, address) for family, address in self._places]

    def listen_again(self) -> None:
        """Refuse connections no longer."""
        for each in self._sockets:
            if self._losing:
                lose_packets(each, lost=True)
            each.listen(_BACKLOG)
            self._watch(each)

    def lose_packets(self, *, lost: bool) -> None:
        """Let no connection begin and tell nobody, or let them begin again. Those that there are stay."""
        self._losing = lost
        for each in self._sockets:
            lose_packets(each, lost=lost)

    def close(self) -> None:
        """Stop listening, give the port back, and drop who has not yet been let in."""
        self._give_back()
        self._door.close()

    def _give_back(self) -> None:
        loop = asyncio.get_running_loop()
        sockets, self._sockets = self._sockets, []
        for each in sockets:
            pause = self._pauses.pop(each, None)
            if pause is not None:
                pause.cancel()
            loop.remove_reader(each)
            each.close()

    def _watch(self, listening: socket.socket) -> None:
        self._pauses.pop(listening, None)
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._pause(listening, error=error)
                return
            Arrival(accepted, door=self._door).begin()
            if listening not in self._sockets:
                # A fault that struck the arrival had the port refuse.
                return

    def _pause(self, listening: socket.socket, *, error: OSError) -> None:
        _log.error("port %s: no more connections for now: %s; raise the limit of open files", self._port, error)
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        self._pauses[listening] = loop.call_later(_SECONDS_WITHOUT_DESCRIPTORS, self._watch, listening)


def _bound_together(places: Sequence[tuple[socket.AddressFamily, object]]) -> list[socket.socket]:
    """Bind all addresses of a host on one port."""
    with ExitStack() as made:
        sockets: list[socket.socket] = []
        for family, address in places:
            try:
                each = _bound(family, address if len(sockets) == 0 else _with_port_of(sockets[0], address=address))
            except OSError as error:
                # A name such as localhost may stand for an address family that this machine lacks.
                if error.errno in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL} and len(places) > 1:
                    continue
                raise
            sockets.append(made.enter_context(each))
        if len(sockets) == 0:
            raise OSError(errno.EADDRNOTAVAIL, f"none of {[address for _, address in places]} is of this machine")
        made.pop_all()
        return sockets


def _with_port_of(bound: socket.socket, *, address: object) -> object:
    parts = cast("tuple[object, ...]", address)
    return (parts[0], bound.getsockname()[1], *parts[2:])


def _bound(family: socket.AddressFamily, address: object) -> socket.socket:
    # Named, so that asyncio sends each answer at once: else it may wait for a delayed acknowledgement (Nagle).
    bound = socket.socket(family, proto=socket.IPPROTO_TCP)
    try:
        bound.settimeout(0)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)  # type: ignore[arg-type]
    except OSError as error:
        bound.close()
        reason = os.strerror(error.errno or 0).lower()
        raise OSError(error.errno, f"address {address} cannot be listened on: {reason}") from error
    return bound
