"""The TCP port of a namespace, which can refuse connections for a while without losing it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Final

from servicebus_emulator.amqp.packets import lose_packets

__all__ = ["Listener"]

_BACKLOG: Final = 512


class Listener:
    """Listens, or holds its port without listening, so that the kernel refuses connections.

    :param host: the address to listen on.
    :param port: the TCP port; 0 = any, which it then keeps.
    :param make: makes the protocol of a connection.
    """

    def __init__(self, host: str, *, port: int, make: Callable[[], asyncio.Protocol]) -> None:
        self._host = host
        self._wanted = port
        self._make = make
        self._port: int | None = None
        self._servers: list[asyncio.Server] = []
        self._places: list[tuple[socket.AddressFamily, object]] = []
        self._held: list[socket.socket] = []
        self._change: asyncio.Task[None] | None = None
        self._losing = False

    @property
    def port(self) -> int | None:
        """The TCP port; None before it was ever opened."""
        return self._port

    async def open(self) -> None:
        """Listen.

        :raises OSError: when the port is taken or the host is not of this machine.
        """
        server = await asyncio.get_running_loop().create_server(self._make, self._host, self._wanted, backlog=_BACKLOG)
        self._servers = [server]
        self._places = [(each.family, each.getsockname()) for each in server.sockets]
        self._port = int(server.sockets[0].getsockname()[1])

    def refuse(self) -> None:
        """Refuse connections from now on. Those that there are stay."""
        self.close()
        self._held = [_bound(family, address) for family, address in self._places]

    def listen_again(self) -> None:
        """Refuse connections no longer."""
        self._change = asyncio.get_running_loop().create_task(self._listen_again())

    def lose_packets(self, *, lost: bool) -> None:
        """Let no connection begin and tell nobody, or let them begin again. Those that there are stay."""
        self._losing = lost
        for server in self._servers:
            self._filter(server)

    def close(self) -> None:
        """Stop listening and give the port back."""
        if self._change is not None:
            self._change.cancel()
        servers, self._servers = self._servers, []
        held, self._held = self._held, []
        for server in servers:
            server.close()
        for each in held:
            each.close()

    async def _listen_again(self) -> None:
        loop = asyncio.get_running_loop()
        while len(self._held) > 0:
            server = await loop.create_server(self._make, sock=self._held.pop(), start_serving=False, backlog=_BACKLOG)
            self._servers.append(server)
            if self._losing:
                self._filter(server)
            await server.start_serving()

    def _filter(self, server: asyncio.Server) -> None:
        for each in server.sockets:
            lose_packets(each, lost=self._losing)


def _bound(family: socket.AddressFamily, address: object) -> socket.socket:
    bound = socket.socket(family)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(address)  # type: ignore[arg-type]
    except BaseException:
        bound.close()
        raise
    return bound
