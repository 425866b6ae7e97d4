"""The HTTP server of Azure Resource Manager: one for all namespaces of a process."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from ssl import SSLContext
from typing import Final

from aiohttp import web

from servicebus_emulator.admin.http_faults import apply_fault
from servicebus_emulator.admin.http_server import MAX_BODY_BYTES, HttpServer, read_body, send_continue
from servicebus_emulator.amqp.transport.timeouts import ClientTimeouts
from servicebus_emulator.arm.addresses import Scope, parse_address
from servicebus_emulator.arm.errors import ArmError, to_arm_error
from servicebus_emulator.arm.namespace_host import NamespaceHost
from servicebus_emulator.arm.namespace_register import NamespaceRegister
from servicebus_emulator.arm.operations import ResourceManager
from servicebus_emulator.arm.requests import Request, Response
from servicebus_emulator.engine.model.clock import Clock
from servicebus_emulator.engine.model.errors import Unauthorized

__all__ = ["ArmServer", "TokenCheck"]

_BEARER: Final = "bearer "

_log = logging.getLogger(__name__)


TokenCheck = Callable[[str], object]
"""Takes the token of a request; raises Unauthorized if it is not valid."""


class ArmServer(HttpServer):
    """Serves Azure Resource Manager in the running event loop.

    :param namespaces: starts and stops the namespaces.
    :param register: the properties of the namespaces other than their entities.
    :param port: the TCP port; 0 = any.
    :param scope: the subscription and the resource group of the emulator.
    :param check: checks the token of a request; None = no token is needed.
    :param tls: returns the TLS context.
    :param timeouts: time limits for clients.
    """

    def __init__(
        self,
        namespaces: NamespaceHost,
        *,
        register: NamespaceRegister,
        host: str,
        port: int,
        scope: Scope,
        clock: Clock,
        check: TokenCheck | None,
        tls: Callable[[], SSLContext],
        timeouts: ClientTimeouts,
    ) -> None:
        self._scope: Final = scope
        self._check: Final = check
        self._manager: Final = ResourceManager(namespaces, register=register, scope=scope, clock=clock)
        application = web.Application(client_max_size=MAX_BODY_BYTES)
        application.router.add_route("*", "/{path:.*}", self._handle, expect_handler=send_continue)
        super().__init__(
            application, label="the ARM endpoint", host=host, port=port, tls=tls, timeout=timeouts.greeting_seconds
        )

    @property
    def url(self) -> str:
        """The base URL for clients. The port also accepts plain HTTP, for clients that allow tokens over it.

        :raises RuntimeError: the server is not started.
        """
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"https://{host}:{self.port}"

    async def start(self) -> None:
        """Serve the namespaces that were created before a restart, and start listening.

        :raises OSError: the port is taken, or the host is not an address of this machine.
        :raises JournalError: the file of a namespace cannot be opened or is in use.
        """
        await self._manager.restore()
        await super().start()

    async def _handle(self, http_request: web.Request) -> web.Response:
        try:
            self._check_token(http_request)
            response = await self._response(http_request)
        except ArmError as error:
            response = Response(error.status, error.document())
        headers = dict(response.headers)
        if response.status == web.HTTPUnauthorized.status_code:
            headers["WWW-Authenticate"] = "Bearer"
        if response.document is None:
            return web.Response(status=response.status, headers=headers)
        text = json.dumps(response.document, ensure_ascii=False)
        return web.Response(status=response.status, text=text, content_type="application/json", headers=headers)

    async def _response(self, http_request: web.Request) -> Response:
        raw_path = http_request.rel_url.raw_path
        request = Request(
            method=http_request.method,
            origin=f"{http_request.scheme}://{http_request.host}",
            raw_path=raw_path,
            query=http_request.query,
            body=await _read_body(http_request),
            address=parse_address(raw_path, method=http_request.method),
            scope=self._scope,
        )
        namespace = self._manager.find_namespace(request.address)
        if namespace is not None:
            fault = await apply_fault(namespace.fault_injector, request=http_request, entity=request.address.entity)
            if fault is not None:
                raise to_arm_error(fault)
        return await self._manager.handle(request)

    def _check_token(self, request: web.Request) -> None:
        if self._check is None:
            return
        header = request.headers.get("Authorization", "")
        if header[: len(_BEARER)].casefold() != _BEARER:
            raise ArmError(401, "the header Authorization has no bearer token; send one", code="AuthenticationFailed")
        try:
            self._check(header[len(_BEARER) :].strip())
        except Unauthorized as error:
            _log.warning("ARM endpoint: %s refused: %s", request.method, error)
            raise ArmError(401, str(error), code="InvalidAuthenticationToken") from error


async def _read_body(request: web.Request) -> bytes:
    try:
        return await read_body(request)
    except web.HTTPRequestEntityTooLarge as error:
        raise ArmError(413, f"the body is too large; allowed: {MAX_BODY_BYTES} bytes") from error
