"""What the HTTP applications of the emulator share: bodies, ``Expect: 100-continue``, their start and quiet logs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import HttpVersion11, web
from aiohttp.http_exceptions import HttpProcessingError

MAX_BODY_BYTES: Final = 1024 * 1024
MAX_FORM_BYTES: Final = 16 * 1024
"""Of a body that needs no login."""

_BODY_SECONDS: Final = 20.0
_SHUTDOWN_SECONDS: Final = 0.5
# For the rest of a body that is refused.
_LINGERING_SECONDS: Final = 1.0
_KEEP_ALIVE_SECONDS: Final = 75.0
_CLIENT_ERRORS: Final = (HttpProcessingError, ConnectionError, web.HTTPException, web.RequestPayloadError)

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


def started_runner(application: web.Application) -> web.AppRunner:
    """Return what makes the protocols of an application that has nothing to wait for when it starts."""
    runner = web.AppRunner(application, shutdown_timeout=_SHUTDOWN_SECONDS)
    try:
        runner.setup().send(None)
    except StopIteration:
        return runner
    raise RuntimeError("the application waits for something at its start; allowed: nothing")


class HttpProtocol(web.RequestHandler):
    """Serves one connection, and keeps nothing of bytes that are no HTTP.

    The traceback of such an error holds the bytes, in a reference cycle with the error.

    :param server: the server of a runner.
    """

    __slots__ = ()

    def __init__(self, server: web.Server) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type]  # aiohttp takes it for "no access log"
            logger=_log,
            keepalive_timeout=_KEEP_ALIVE_SECONDS,
            lingering_time=_LINGERING_SECONDS,
            auto_decompress=False,
        )

    def data_received(self, data: bytes) -> None:
        """Parse the bytes."""
        super().data_received(data)
        for message, _ in self._messages:
            error = getattr(message, "exc", None)
            if error is not None:
                error.with_traceback(None)


@web.middleware
async def without_tracebacks(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Answer a request that is refused by an exception.

    aiohttp would keep the exception, whose traceback holds the body, in a reference cycle.
    """
    try:
        return await handler(request)
    except web.HTTPException as error:
        return web.Response(status=error.status, reason=error.reason, text=error.text, headers=error.headers)
    except ConnectionError as error:
        error.with_traceback(None)
        _log.info("a request could not be served: %s", type(error).__name__)
        return web.Response(status=400)  # to nobody


async def read_body(request: web.Request, *, limit: int = MAX_BODY_BYTES) -> bytes:
    """Return the body of a request, which must arrive in 20 s.

    :param limit: its largest size in bytes.
    :raises HTTPRequestTimeout: it did not; the connection is closed.
    :raises HTTPRequestEntityTooLarge: it is larger.
    :raises HTTPUnsupportedMediaType: it is compressed.
    :raises HTTPBadRequest: it is not encoded as its header says.
    """
    coding = request.headers.get("Content-Encoding", "identity")
    if coding.lower() != "identity":
        raise web.HTTPUnsupportedMediaType(text=f"Content-Encoding is {coding[:100]!r}; allowed: identity")
    body = bytearray()
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for part in request.content.iter_any():
                body += part
                if len(body) > limit:
                    raise web.HTTPRequestEntityTooLarge(limit, len(body))
            return bytes(body)
    except web.RequestPayloadError as error:
        raise web.HTTPBadRequest(text="the body cannot be decoded") from error
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
