"""The HTTP application of the administration API."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from aiohttp import web

from servicebus_emulator.admin.access_control import Handler, Route, check_host, require_manage, require_this_host
from servicebus_emulator.admin.fault_routes import add_fault_routes
from servicebus_emulator.admin.http_faults import apply_fault
from servicebus_emulator.admin.http_requests import MAX_BODY_BYTES, read_body, send_continue, without_tracebacks
from servicebus_emulator.admin.operations import Administration, error_response
from servicebus_emulator.admin.requests import Request, Response
from servicebus_emulator.admin.token_endpoint import token_routes
from servicebus_emulator.engine.model.clock import Clock, SystemClock
from servicebus_emulator.engine.model.descriptions import AccessRight
from servicebus_emulator.engine.model.errors import Unauthorized
from servicebus_emulator.security.resource_paths import resource_path

if TYPE_CHECKING:
    from servicebus_emulator.amqp.broker.fault_injector import FaultInjector
    from servicebus_emulator.engine.namespace.namespace import Namespace
    from servicebus_emulator.security.authorizer import Authorizer

_ATOM: Final = "application/atom+xml"
_DEFAULT_CLOCK: Final = SystemClock()

_log = logging.getLogger(__name__)


def admin_application(
    namespace: Namespace,
    *,
    authorizer: Authorizer,
    clock: Clock = _DEFAULT_CLOCK,
    fault_injector: FaultInjector | None = None,
    routes: Sequence[Route] = (),
) -> web.Application:
    """Build the administration API of one namespace, with the token endpoint and further routes.

    A queue may have the path of a route: requests about entities carry ``api-version``, those for routes do not.
    Tokens for forwarding targets (``ServiceBusSupplementaryAuthorization``) are ignored.

    :param authorizer: checks that a client may manage the entity.
    :param fault_injector: faults of the namespace, managed at ``/$faults``; None = no faults.
    :param routes: further routes, such as ``GET /health``.
    """
    administration = Administration(namespace, clock=clock)

    async def administer(request: web.Request) -> web.Response:
        if fault_injector is not None:
            error = await apply_fault(fault_injector, request=request, entity=request.path.strip("/"))
            if error is not None:
                return _http_response(error_response(error.status, reason=str(error)))
        try:
            _authorize(authorizer, request=request)
        except Unauthorized as error:
            _log.warning(
                "namespace %s: %s %.300s refused: %.1000s", namespace.name, request.method, request.path, error
            )
            return _http_response(error_response(error.status, reason=str(error)))
        return _http_response(await _administer(administration, request=request))

    def dispatch(route: Route) -> Handler:
        public = require_this_host(route.handler)
        handler = public if route.public else require_manage(route.handler, authorizer=authorizer)

        async def handle(request: web.Request) -> web.StreamResponse:
            return await (administer(request) if "api-version" in request.query else handler(request))

        return handle

    application = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[without_tracebacks])
    for route in (*routes, *token_routes(authorizer.issuer)):
        application.router.add_route(route.method, route.path, dispatch(route), expect_handler=send_continue)
    if fault_injector is not None:
        add_fault_routes(application.router, fault_injector=fault_injector, authorizer=authorizer)
    application.router.add_route("*", "/{path:.*}", administer, expect_handler=send_continue)
    return application


def _authorize(authorizer: Authorizer, *, request: web.Request) -> None:
    # Only the path is checked: the client chooses the host of its URL.
    path = resource_path(f"https://host{request.rel_url.raw_path}")
    authorizer.authorize(request.headers.get("Authorization"), path=path, rights=[AccessRight.MANAGE])
    check_host(request, well_known=authorizer.well_known)


async def _administer(administration: Administration, *, request: web.Request) -> Response:
    try:
        body = await read_body(request)
    except web.HTTPRequestEntityTooLarge:
        return error_response(413, reason=f"the body is too large; allowed: {MAX_BODY_BYTES} bytes")
    return administration.handle(
        Request(
            method=request.method,
            origin=f"{request.scheme}://{request.host}",
            raw_path=request.rel_url.raw_path,
            query=request.query,
            update="If-Match" in request.headers,
            body=body,
        )
    )


def _http_response(response: Response) -> web.Response:
    kind = "application/xml; charset=utf-8" if response.kind is None else f"{_ATOM};type={response.kind};charset=utf-8"
    headers = {"Content-Type": kind} if len(response.document) > 0 else {}
    if response.etag is not None:
        headers["ETag"] = response.etag
    return web.Response(status=response.status, body=response.document, headers=headers)
