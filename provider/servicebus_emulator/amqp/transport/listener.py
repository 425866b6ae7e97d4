"""The listening TCP port of a namespace, which can refuse connections for a while without losing its port."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final, cast

from servicebus_emulator.amqp.transport.packet_loss import lose_packets
from servicebus_emulator.amqp.transport.port_handler import AcceptedSocket, PortHandler

_BACKLOG: Final = 4096
_MAX_ACCEPTS_PER_EVENT: Final = 256
_RETRY_SECONDS: Final = 0.5
_OUT_OF_RESOURCES: Final = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

_log = logging.getLogger(__name__)


class Listener:
    """Listens on a port, or stays bound to it without listening, so that the kernel refuses connections.

    :param host: the host name or address to listen on.
    :param port: the TCP port; 0 = any free port, kept from then on.
    :param handler: handles accepted connections.
    """

    def __init__(self, host: str, *, port: int, handler: PortHandler) -> None:
        self._host = host
        self._requested_port = port
        self._handler = handler
        self._port: int | None = None
        self._addresses: list[tuple[socket.AddressFamily, object]] = []
        self._sockets: list[socket.socket] = []
        self._paused: dict[socket.socket, asyncio.TimerHandle] = {}
        self._losing_packets = False

    @property
    def port(self) -> int | None:
        """The TCP port; None before the first :meth:`open`."""
        return self._port

    async def open(self) -> None:
        """Bind the port and listen.

        :raises OSError: when the port is in use, or the host has no address or none of this machine.
        """
        try:
            found = await asyncio.get_running_loop().getaddrinfo(
                self._host, self._requested_port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
        except socket.gaierror as error:
            reason = f"host {self._host!r} has no address: {error.strerror}; allowed: a name or address of this machine"
            raise OSError(error.errno, reason) from error
        addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
        self._sockets = _bind_all(addresses)
        self._addresses = [(each.family, each.getsockname()) for each in self._sockets]
        self._port = int(self._addresses[0][1][1])  # type: ignore[index]
        self.listen_again()

    def refuse(self) -> None:
        """Refuse new connections; existing ones stay open."""
        self._close_sockets()
        self._sockets = [_bind(family, address) for family, address in self._addresses]

    def listen_again(self) -> None:
        """Accept connections again."""
        for each in self._sockets:
            if self._losing_packets:
                lose_packets(each, lost=True)
            each.listen(_BACKLOG)
            self._start_accepting(each)

    def lose_packets(self, *, lost: bool) -> None:
        """Leave new connections (their SYN packets) unanswered, or answer them again; existing ones stay open."""
        self._losing_packets = lost
        for each in self._sockets:
            lose_packets(each, lost=lost)

    def close(self) -> None:
        """Release the port and drop the connections that have no protocol yet."""
        self._close_sockets()
        self._handler.close()

    def _close_sockets(self) -> None:
        loop = asyncio.get_running_loop()
        sockets, self._sockets = self._sockets, []
        for each in sockets:
            timer = self._paused.pop(each, None)
            if timer is not None:
                timer.cancel()
            loop.remove_reader(each)
            each.close()

    def _start_accepting(self, listening: socket.socket) -> None:
        self._paused.pop(listening, None)
        asyncio.get_running_loop().add_reader(listening, self._accept, listening)

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_MAX_ACCEPTS_PER_EVENT):
            try:
                accepted, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    raise
                self._pause(listening, error=error)
                return
            AcceptedSocket(accepted, handler=self._handler).start()
            if listening not in self._sockets:
                # A fault triggered by this connection made the port refuse connections.
                return

    def _pause(self, listening: socket.socket, *, error: OSError) -> None:
        _log.error("port %s: cannot accept connections: %s; raise the limit of open files", self._port, error)
        loop = asyncio.get_running_loop()
        loop.remove_reader(listening)
        self._paused[listening] = loop.call_later(_RETRY_SECONDS, self._start_accepting, listening)


def _bind_all(addresses: Sequence[tuple[socket.AddressFamily, object]]) -> list[socket.socket]:
    """Bind all addresses of a host to the same port."""
    with ExitStack() as bound:
        sockets: list[socket.socket] = []
        for family, address in addresses:
            try:
                each = _bind(family, address if len(sockets) == 0 else _with_port_of(sockets[0], address=address))
            except OSError as error:
                # A name such as localhost may have an address of a family that this machine lacks.
                if error.errno in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL} and len(addresses) > 1:
                    continue
                raise
            sockets.append(bound.enter_context(each))
        if len(sockets) == 0:
            raise OSError(errno.EADDRNOTAVAIL, f"none of {[address for _, address in addresses]} is of this machine")
        bound.pop_all()
        return sockets


def _with_port_of(bound: socket.socket, *, address: object) -> object:
    parts = cast("tuple[object, ...]", address)
    return (parts[0], bound.getsockname()[1], *parts[2:])


def _bind(family: socket.AddressFamily, address: object) -> socket.socket:
    # asyncio sets TCP_NODELAY only on sockets whose protocol number is IPPROTO_TCP; with 0, replies wait for ACKs.
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
