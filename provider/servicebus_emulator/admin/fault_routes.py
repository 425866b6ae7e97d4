"""Faults over HTTP: ``POST``, ``GET`` and ``DELETE`` at ``/$faults``, on the administration port of a namespace.

``POST`` sets the fault in its JSON body and answers 201 with its id. ``GET`` lists the active faults with their number
of strikes. ``DELETE /$faults/{id}`` clears one fault, ``DELETE /$faults`` all; both return what they cleared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiohttp import web

from servicebus_emulator.admin.access_control import require_manage
from servicebus_emulator.admin.http_requests import read_body, send_continue
from servicebus_emulator.faults import Armed, FaultError
from servicebus_emulator.faults.codec import armed_document, fault_from_json

if TYPE_CHECKING:
    from servicebus_emulator.amqp.broker.fault_injector import FaultInjector
    from servicebus_emulator.security.authorizer import Authorizer

_PATH = "/$faults"
_MAX_FAULT_BYTES = 256 * 1024


def add_fault_routes(router: web.UrlDispatcher, *, fault_injector: FaultInjector, authorizer: Authorizer) -> None:
    """Add the routes that manage the faults of one namespace."""

    async def post(request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            return _error_response("Content-Type", value=request.content_type, allowed="application/json")
        try:
            armed = fault_injector.add(fault_from_json(json.loads(await read_body(request, limit=_MAX_FAULT_BYTES))))
        except FaultError as error:
            return _error_response(error.field, value=error.value, allowed=error.allowed)
        except (ValueError, RecursionError) as error:
            return _error_response("the body", value=str(error), allowed="a JSON object")
        return web.json_response(armed_document(armed), status=201)

    async def get(_: web.Request) -> web.Response:
        return _list_response(fault_injector.armed)

    async def delete(request: web.Request) -> web.Response:
        fault_id = request.match_info.get("id")
        cleared = fault_injector.clear(fault_id)
        if fault_id is not None and len(cleared) == 0:
            known = ", ".join(each.id for each in fault_injector.armed)
            return _error_response("id", value=fault_id, allowed="none is set" if known == "" else known, status=404)
        return _list_response(cleared)

    for method, path, handler in (
        ("POST", _PATH, post),
        ("GET", _PATH, get),
        ("DELETE", _PATH, delete),
        ("DELETE", _PATH + "/{id}", delete),
    ):
        router.add_route(method, path, require_manage(handler, authorizer=authorizer), expect_handler=send_continue)


def _list_response(armed: Iterable[Armed]) -> web.Response:
    return web.json_response({"faults": [armed_document(each) for each in armed]})


def _error_response(field: str, *, value: object, allowed: str, status: int = 400) -> web.Response:
    error = FaultError(field, value=value, allowed=allowed)
    return web.json_response({"error": str(error), "field": field, "allowed": allowed}, status=status)
