"""The HTTP application of Azure Resource Manager: one for all namespaces of a process."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Final

from aiohttp import web

from servicebus_emulator.admin.access_control import check_host
from servicebus_emulator.admin.http_faults import apply_fault
from servicebus_emulator.admin.http_requests import MAX_BODY_BYTES, read_body, send_continue, without_tracebacks
from servicebus_emulator.arm.addresses import Scope, parse_address
from servicebus_emulator.arm.errors import ArmError, to_arm_error
from servicebus_emulator.arm.operations import ResourceManager
from servicebus_emulator.arm.requests import Request, Response
from servicebus_emulator.engine.model.errors import Unauthorized
from servicebus_emulator.security.bearer import BearerClaims, Role

_BEARER: Final = "bearer "

_log = logging.getLogger(__name__)


TokenCheck = Callable[[str], BearerClaims]
"""Takes the token of a request; raises Unauthorized if it is not valid."""


def arm_application(
    manager: ResourceManager, *, scope: Scope, check: TokenCheck | None, well_known: bool
) -> web.Application:
    """Build the application that serves Azure Resource Manager.

    :param scope: the subscription and the resource group of the emulator.
    :param check: checks the token of a request; None = no token is needed.
    :param well_known: whether anybody can have a token: then a request from this machine must name it.
    """
    application = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[without_tracebacks])
    handler = _Handler(manager, scope=scope, check=check, well_known=well_known)
    application.router.add_route("*", "/{path:.*}", handler.handle, expect_handler=send_continue)
    return application


class _Handler:
    def __init__(self, manager: ResourceManager, *, scope: Scope, check: TokenCheck | None, well_known: bool) -> None:
        self._manager: Final = manager
        self._scope: Final = scope
        self._check: Final = check
        self._well_known: Final = well_known

    async def handle(self, http_request: web.Request) -> web.Response:
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
        try:
            if self._check is not None:
                _check_role(self._check(_bearer_token(request)), method=request.method)
            check_host(request, well_known=self._well_known)
        except Unauthorized as error:
            _log.warning("ARM endpoint: %s refused: %.1000s", request.method, error)
            raise ArmError(401, str(error), code="InvalidAuthenticationToken") from error


def _check_role(claims: BearerClaims, *, method: str) -> None:
    # The roles for data have no rights of management, which reads keys.
    if claims.role is not Role.OWNER:
        message = f"The client {claims.client!r} with the role {claims.role} does not have authorization to {method}"
        raise ArmError(403, f"{message}; allowed: {Role.OWNER}", code="AuthorizationFailed")


def _bearer_token(request: web.Request) -> str:
    header = request.headers.get("Authorization", "")
    if header[: len(_BEARER)].casefold() != _BEARER:
        raise ArmError(401, "the header Authorization has no bearer token; send one", code="AuthenticationFailed")
    return header[len(_BEARER) :].strip()


async def _read_body(request: web.Request) -> bytes:
    try:
        return await read_body(request)
    except web.HTTPRequestEntityTooLarge as error:
        raise ArmError(413, f"the body is too large; allowed: {MAX_BODY_BYTES} bytes") from error
