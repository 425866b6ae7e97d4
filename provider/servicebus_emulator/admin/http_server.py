"""An HTTP server that loads aiohttp, which takes as much memory as all else, when the first client needs it."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from servicebus_emulator.amqp.transport.listener import Listener
from servicebus_emulator.amqp.transport.newcomers import StreamProtocol
from servicebus_emulator.amqp.transport.port_handler import PortHandler
from servicebus_emulator.amqp.transport.protocol_detection import ConnectionCounts, request_head_reader

if TYPE_CHECKING:
    from aiohttp import web

_log = logging.getLogger(__name__)


class HttpServer:
    """Serves an aiohttp application over HTTP and HTTPS on one port.

    :param make_application: makes the application, when the first client has connected.
    :param label: name of the server in error messages.
    :param port: the TCP port; 0 = any.
    :param tls: returns the TLS context; None = no TLS.
    :param timeout: seconds to wait for the head of a connection's first request.
    :ivar counts: outcomes of the connections.
    """

    def __init__(
        self,
        make_application: Callable[[], web.Application],
        *,
        label: str,
        host: str,
        port: int,
        tls: Callable[[], ssl.SSLContext] | None,
        timeout: float,
    ) -> None:
        self.counts: Final = ConnectionCounts()
        self._label: Final = label
        self._host: Final = host
        self._timeout: Final = timeout
        self._make_application: Final = make_application
        self._runner: web.AppRunner | None = None
        handler = PortHandler(make_protocol=self.make_handler, tls=tls, timeout=timeout, counts=self.counts)
        self._listener: Final = Listener(host, port=port, handler=handler)

    @property
    def port(self) -> int:
        """The TCP port of the listener.

        :raises RuntimeError: the server is not started.
        """
        if self._listener.port is None:
            raise RuntimeError(f"{self._label} has no port; call start() first")
        return self._listener.port

    def make_handler(self) -> StreamProtocol:
        """Return the protocol that serves one connection.

        :raises RuntimeError: the server is not started, or is stopped.
        """
        if self._listener.port is None:
            raise RuntimeError(f"{self._label} is not started; call start() first")
        return request_head_reader(self._make_protocol, timeout=self._timeout, counts=self.counts)

    async def start(self) -> None:
        """Start listening.

        :raises OSError: the port is taken, or the host is not an address of this machine.
        """
        await self._listener.open()
        _log.info("%s: http(s)://%s:%d", self._label, self._host, self.port)

    async def stop(self) -> None:
        """Stop listening; requests in flight get half a second. Does nothing if the server is not started."""
        self._listener.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def _make_protocol(self) -> asyncio.Protocol:
        from servicebus_emulator.admin.http_requests import HttpProtocol, started_runner

        if self._runner is None:
            self._runner = started_runner(self._make_application())
        server = self._runner.server
        if server is None:
            raise RuntimeError(f"{self._label} is stopped")
        return HttpProtocol(server)
