"""The HTTP server of the interface: one for all namespaces of a process."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from ssl import SSLContext
from typing import Final

from aiohttp import web

from servicebus_emulator.admin.expectation import go_on
from servicebus_emulator.admin.http_log import http_log
from servicebus_emulator.admin.spoiling import spoil
from servicebus_emulator.amqp.arrival import ArrivalCounts, Door
from servicebus_emulator.amqp.first_request import FirstRequest
from servicebus_emulator.amqp.listener import Listener
from servicebus_emulator.amqp.patience import Patience
from servicebus_emulator.arm.addresses import Scope, address_of
from servicebus_emulator.arm.calls import Answer, Call
from servicebus_emulator.arm.errors import ArmError, arm_error_of
from servicebus_emulator.arm.host import Host
from servicebus_emulator.arm.operations import ResourceManager
from servicebus_emulator.arm.register import Register
from servicebus_emulator.engine.clock import Clock
from servicebus_emulator.engine.errors import Unauthorized

__all__ = ["ArmServer", "TokenCheck"]

_MAX_BODY: Final = 1024 * 1024
_STOP_SECONDS: Final = 0.5
_BEARER: Final = "bearer "

_log = logging.getLogger(__name__)


TokenCheck = Callable[[str], object]
"""Takes the token of a request; raises Unauthorized where its bearer is not let in."""


class ArmServer:
    """Serves the interface in the running event loop.

    :param source: serves the namespaces.
    :param register: what is known of namespaces beside their entities.
    :param host: the address to listen on.
    :param port: the TCP port; 0 lets the system choose.
    :param scope: the subscription and the resource group that there are.
    :param clock: what time it is.
    :param check: decides whether the bearer of a token is let in; None = everybody is, without a token too.
    :param tls: returns what a TLS server is made of.
    :param patience: how long clients are waited for.
    """

    def __init__(
        self,
        source: Host,
        *,
        register: Register,
        host: str,
        port: int,
        scope: Scope,
        clock: Clock,
        check: TokenCheck | None,
        tls: Callable[[], SSLContext],
        patience: Patience,
    ) -> None:
        self._host: Final = host
        self._scope: Final = scope
        self._check: Final = check
        self._manager: Final = ResourceManager(source, register=register, scope=scope, clock=clock)
        application = web.Application(client_max_size=_MAX_BODY)
        application.router.add_route("*", "/{path:.*}", self._serve, expect_handler=go_on)
        self._runner: Final = web.AppRunner(
            application, access_log=None, logger=http_log, shutdown_timeout=_STOP_SECONDS
        )
        self._seconds: Final = patience.greeting_seconds
        self._counts: Final = ArrivalCounts()
        door = Door(make=self._make_handler, tls=tls, seconds=self._seconds, counts=self._counts)
        self._listener: Final = Listener(host, port=port, door=door)

    @property
    def url(self) -> str:
        """What clients take as their base URL. The port takes plain HTTP as well, which they must be told to send.

        :raises RuntimeError: when the server is not started.
        """
        if self._listener.port is None:
            raise RuntimeError("the ARM interface has no port; start() it first")
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"https://{host}:{self._listener.port}"

    async def start(self) -> None:
        """Have the namespaces served that were made before a restart, and listen.

        :raises OSError: when the port is taken or the address is not of this machine.
        :raises JournalError: when the file of a namespace cannot be opened or is in use.
        """
        await self._manager.restore()
        await self._runner.setup()
        try:
            await self._listener.open()
        except OSError:
            await self._runner.cleanup()
            raise
        _log.info("ARM interface on %s", self.url)

    async def stop(self) -> None:
        """Stop listening, after half a second for requests in flight. Stopping twice, or unstarted, does nothing."""
        self._listener.close()
        await self._runner.cleanup()

    def _make_handler(self) -> asyncio.Protocol:
        server = self._runner.server
        if server is None:
            raise RuntimeError("the ARM interface is stopped; start() it again")
        return FirstRequest(server, seconds=self._seconds, counts=self._counts)

    async def _serve(self, request: web.Request) -> web.Response:
        try:
            self._check_token(request)
            answer = await self._answer(request)
        except ArmError as error:
            answer = Answer(error.status, error.document())
        headers = {"WWW-Authenticate": "Bearer"} if answer.status == web.HTTPUnauthorized.status_code else None
        if answer.document is None:
            return web.Response(status=answer.status, headers=headers)
        text = json.dumps(answer.document, ensure_ascii=False)
        return web.Response(status=answer.status, text=text, content_type="application/json", headers=headers)

    async def _answer(self, request: web.Request) -> Answer:
        raw_path = request.rel_url.raw_path
        call = Call(
            method=request.method,
            origin=f"{request.scheme}://{request.host}",
            raw_path=raw_path,
            query=request.query,
            body=await _body(request),
            address=address_of(raw_path, method=request.method),
            scope=self._scope,
        )
        hosted = self._manager.owner(call.address)
        if hosted is not None:
            refusal = await spoil(hosted.trouble, request=request, entity=call.address.entity)
            if refusal is not None:
                raise arm_error_of(refusal)
        return await self._manager.answer(call)

    def _check_token(self, request: web.Request) -> None:
        if self._check is None:
            return
        given = request.headers.get("Authorization", "")
        if given[: len(_BEARER)].casefold() != _BEARER:
            raise ArmError(
                401,
                code="AuthenticationFailed",
                message="there is no bearer token in the header Authorization; send one",
            )
        try:
            self._check(given[len(_BEARER) :].strip())
        except Unauthorized as error:
            _log.warning("ARM interface: %s refused: %s", request.method, error)
            raise ArmError(401, code="InvalidAuthenticationToken", message=str(error)) from error


async def _body(request: web.Request) -> bytes:
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise ArmError(
            413, code="RequestEntityTooLarge", message=f"the body is too large; allowed: {_MAX_BODY} bytes"
        ) from error
