"""The HTTP server of the administration API."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from aiohttp import web

from servicebus_emulator.admin.expectation import go_on
from servicebus_emulator.admin.faults import add_fault_routes
from servicebus_emulator.admin.guarding import Handler, guarded
from servicebus_emulator.admin.http_log import http_log
from servicebus_emulator.admin.operations import Administration, refusal
from servicebus_emulator.admin.pages import Page
from servicebus_emulator.admin.requests import Answer, Request
from servicebus_emulator.admin.spoiling import spoil
from servicebus_emulator.admin.token_endpoint import token_pages
from servicebus_emulator.amqp.arrival import ArrivalCounts, Door
from servicebus_emulator.amqp.first_request import FirstRequest
from servicebus_emulator.amqp.listener import Listener
from servicebus_emulator.amqp.patience import Patience
from servicebus_emulator.engine.clock import Clock, SystemClock
from servicebus_emulator.engine.descriptions import AccessRight
from servicebus_emulator.engine.errors import Unauthorized
from servicebus_emulator.security.resources import resource_path

if TYPE_CHECKING:
    from servicebus_emulator.amqp.trouble import Trouble
    from servicebus_emulator.engine.namespace import Namespace
    from servicebus_emulator.security.guard import Guard

__all__ = ["AdminServer", "build_application"]

_MAX_BODY: Final = 1024 * 1024
_SECONDS_TO_FINISH: Final = 0.5
_DEFAULT_CLOCK: Final = SystemClock()
_DEFAULT_PATIENCE: Final = Patience()

_log = logging.getLogger(__name__)


def build_application(
    namespace: Namespace,
    *,
    guard: Guard,
    clock: Clock = _DEFAULT_CLOCK,
    trouble: Trouble | None = None,
    pages: Sequence[Page] = (),
) -> web.Application:
    """Build the administration API of one namespace, with the token endpoint and other pages beside it.

    A queue may have the path of a page: requests for entities carry ``api-version``,
    those for pages do not. The tokens that clients send along for the targets of forwarding
    (``ServiceBusSupplementaryAuthorization``) are not looked at.

    :param namespace: the namespace that is described and changed.
    :param guard: checks that a client may manage what it asks for.
    :param clock: what time it is.
    :param trouble: the namespace's faults, to be set at ``/$faults`` and to strike requests; None = it has none.
    :param pages: what else there is, such as ``GET /health``.
    """
    administration = Administration(namespace, clock=clock)

    async def administer(request: web.Request) -> web.Response:
        if trouble is not None:
            refused = await spoil(trouble, request=request, entity=request.path.strip("/"))
            if refused is not None:
                return _response(refusal(refused.status, reason=str(refused)))
        try:
            _authorize(guard, request=request)
        except Unauthorized as error:
            _log.warning("namespace %s: %s %s refused: %s", namespace.name, request.method, request.path, error)
            return _response(refusal(error.status, reason=str(error)))
        return _response(await _answer(administration, request=request))

    def beside(page: Page) -> Handler:
        served = page.answer if page.public else guarded(page.answer, guard=guard)

        async def answer(request: web.Request) -> web.StreamResponse:
            return await (administer(request) if "api-version" in request.query else served(request))

        return answer

    application = web.Application(client_max_size=_MAX_BODY)
    for page in (*pages, *token_pages(guard.issuer)):
        application.router.add_route(page.method, page.path, beside(page), expect_handler=go_on)
    if trouble is not None:
        add_fault_routes(application.router, trouble=trouble, guard=guard)
    application.router.add_route("*", "/{path:.*}", administer, expect_handler=go_on)
    return application


class AdminServer:
    """Serves the administration API of one namespace over HTTP, and HTTPS, in the running event loop.

    :param namespace: the namespace that is described and changed.
    :param host: the address to listen on.
    :param port: the TCP port; 0 lets the system choose.
    :param guard: checks that a client may manage what it asks for.
    :param tls: returns what a TLS server is made of; None = there is no TLS.
    :param patience: how long clients are waited for.
    :param clock: what time it is.
    :param trouble: the namespace's faults; None = it has none.
    :param pages: what else there is on the port.
    :ivar counts: what became of those who connected.
    """

    def __init__(
        self,
        namespace: Namespace,
        *,
        host: str,
        port: int,
        guard: Guard,
        tls: Callable[[], ssl.SSLContext] | None = None,
        patience: Patience = _DEFAULT_PATIENCE,
        clock: Clock = _DEFAULT_CLOCK,
        trouble: Trouble | None = None,
        pages: Sequence[Page] = (),
    ) -> None:
        self._namespace: Final = namespace
        self._host: Final = host
        self.counts: Final = ArrivalCounts()
        self._seconds: Final = patience.greeting_seconds
        door = Door(make=self.make_handler, tls=tls, seconds=self._seconds, counts=self.counts)
        self._listener: Final = Listener(host, port=port, door=door)
        application = build_application(namespace, guard=guard, clock=clock, trouble=trouble, pages=pages)
        self._runner: Final = web.AppRunner(
            application, access_log=None, logger=http_log, shutdown_timeout=_SECONDS_TO_FINISH
        )

    @property
    def port(self) -> int:
        """The TCP port that is listened on.

        :raises RuntimeError: when the server is not started.
        """
        port = self._listener.port
        if port is None:
            raise RuntimeError(f"administration of namespace {self._namespace.name!r} has no port; start() it first")
        return port

    def make_handler(self) -> asyncio.Protocol:
        """Return what serves one connection.

        The head of its first request is waited for only so long.

        :raises RuntimeError: when the server is not started, or stopped.
        """
        server = self._runner.server
        if server is None:
            raise RuntimeError(f"administration of namespace {self._namespace.name!r} is not started; start() it first")
        return FirstRequest(server, seconds=self._seconds, counts=self.counts)

    async def start(self) -> None:
        """Listen.

        :raises OSError: when the port is taken or the address is not of this machine.
        """
        await self._runner.setup()
        try:
            await self._listener.open()
        except OSError:
            await self._runner.cleanup()
            raise
        _log.info("namespace %s: administration on http(s)://%s:%d", self._namespace.name, self._host, self.port)

    async def stop(self) -> None:
        """Stop listening; requests in flight have half a second. Stopping twice, or unstarted, does nothing."""
        self._listener.close()
        await self._runner.cleanup()


def _authorize(guard: Guard, *, request: web.Request) -> None:
    # Of the path alone: the client chooses the host, too.
    path = resource_path(f"https://host{request.rel_url.raw_path}")
    guard.authorize(request.headers.get("Authorization"), path=path, rights=[AccessRight.MANAGE])


async def _answer(administration: Administration, *, request: web.Request) -> Answer:
    try:
        body = await request.read()
    except web.HTTPRequestEntityTooLarge:
        return refusal(413, reason=f"the body is too large; allowed: {_MAX_BODY} bytes")
    return administration.answer(
        Request(
            method=request.method,
            origin=f"{request.scheme}://{request.host}",
            raw_path=request.rel_url.raw_path,
            query=request.query,
            update="If-Match" in request.headers,
            body=body,
        )
    )


def _response(answer: Answer) -> web.Response:
    content_type = "application/atom+xml" if answer.status < HTTPStatus.MULTIPLE_CHOICES else "application/xml"
    return web.Response(status=answer.status, body=answer.document, content_type=content_type, charset="utf-8")
