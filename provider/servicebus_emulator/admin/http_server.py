"""What the HTTP servers of the emulator share: listening, ``Expect: 100-continue`` and quiet logs."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from typing import Final

from aiohttp import HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError

from servicebus_emulator.amqp.transport.listener import Listener
from servicebus_emulator.amqp.transport.port_handler import PortHandler
from servicebus_emulator.amqp.transport.protocol_detection import ConnectionCounts, request_head_reader

__all__ = ["MAX_BODY_BYTES", "MAX_FORM_BYTES", "HttpServer", "read_body", "send_continue"]

MAX_BODY_BYTES: Final = 1024 * 1024
MAX_FORM_BYTES: Final = 16 * 1024
"""Of a body that needs no login."""

_BODY_SECONDS: Final = 20.0
_SHUTDOWN_SECONDS: Final = 0.5
# For the rest of a body that is refused.
_LINGERING_SECONDS: Final = 1.0
_CLIENT_ERRORS: Final = (HttpProcessingError, ConnectionError, web.HTTPException)

_log = logging.getLogger(__name__)


class _ClientErrorFilter(logging.Filter):
    """Reduces client errors, which aiohttp logs as its own with a traceback, to one line."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = None if record.exc_info is None else record.exc_info[1]
        if not isinstance(error, _CLIENT_ERRORS):
            return True
        _log.info("a request could not be served: %s", type(error).__name__)
        return False


_log.addFilter(_ClientErrorFilter())


class HttpServer:
    """Serves an aiohttp application over HTTP and HTTPS on one port.

    :param label: name of the server in error messages.
    :param port: the TCP port; 0 = any.
    :param tls: returns the TLS context; None = no TLS.
    :param timeout: seconds to wait for the head of a connection's first request.
    :ivar counts: outcomes of the connections.
    """

    def __init__(
        self,
        application: web.Application,
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
        self._runner: Final = web.AppRunner(
            application,
            access_log=None,
            logger=_log,
            shutdown_timeout=_SHUTDOWN_SECONDS,
            lingering_time=_LINGERING_SECONDS,
        )
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

    def make_handler(self) -> asyncio.Protocol:
        """Return the protocol that serves one connection.

        :raises RuntimeError: the server is not started, or is stopped.
        """
        server = self._runner.server
        if server is None:
            raise RuntimeError(f"{self._label} is not started; call start() first")
        return request_head_reader(server, timeout=self._timeout, counts=self.counts)

    async def start(self) -> None:
        """Start listening.

        :raises OSError: the port is taken, or the host is not an address of this machine.
        """
        await self._runner.setup()
        try:
            await self._listener.open()
        except OSError:
            await self._runner.cleanup()
            raise
        _log.info("%s: http(s)://%s:%d", self._label, self._host, self.port)

    async def stop(self) -> None:
        """Stop listening; requests in flight get half a second. Does nothing if the server is not started."""
        self._listener.close()
        await self._runner.cleanup()


async def read_body(request: web.Request, *, limit: int = MAX_BODY_BYTES) -> bytes:
    """Return the body of a request, which must arrive in 20 s.

    :param limit: its largest size in bytes.
    :raises HTTPRequestTimeout: it did not; the connection is closed.
    :raises HTTPRequestEntityTooLarge: it is larger.
    """
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.content.iter_any():
                body += part
                if len(body) > limit:
                    raise web.HTTPRequestEntityTooLarge(limit, len(body))
            return bytes(body)
    except TimeoutError:
        if request.transport is not None:
            # An answer would wait for the rest of the body.
            request.transport.abort()
        raise web.HTTPRequestTimeout(text=f"the body did not arrive in {_BODY_SECONDS:g} s") from None


async def send_continue(request: web.Request) -> None:
    """Handle the header ``Expect`` (RFC 9110, section 10.1.1).

    aiohttp's own handler answers 500 instead of 417 to a value with bytes outside ASCII.

    :raises HTTPExpectationFailed: the client expects anything but ``100-continue``.
    """
    if request.headers["Expect"].lower() != "100-continue":
        raise web.HTTPExpectationFailed(text="allowed: 100-continue, or no expectation")
    if request.version == HttpVersion11 and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
