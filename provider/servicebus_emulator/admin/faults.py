"""Faults over HTTP: ``POST``, ``GET`` and ``DELETE`` at ``/$faults``, on the administration port of a namespace.

``POST`` sets the fault of its JSON body and answers 201 with its id; ``GET`` lists what is in force with how often
it struck; ``DELETE /$faults/{id}`` clears one fault, ``DELETE /$faults`` all; both answer with what they cleared.

Who may, says :mod:`servicebus_emulator.admin.guarding`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiohttp import web

from servicebus_emulator.admin.expectation import go_on
from servicebus_emulator.admin.guarding import guarded
from servicebus_emulator.fault_reading import armed_document, fault_from_json
from servicebus_emulator.faults import Armed, FaultError

if TYPE_CHECKING:
    from servicebus_emulator.amqp.trouble import Trouble
    from servicebus_emulator.security.guard import Guard

__all__ = ["add_fault_routes"]

_PATH = "/$faults"


def add_fault_routes(router: web.UrlDispatcher, *, trouble: Trouble, guard: Guard) -> None:
    """Serve the faults of one namespace.

    :param guard: checks who asks from elsewhere.
    """

    async def post(request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            return _refused("Content-Type", value=request.content_type, allowed="application/json")
        try:
            armed = trouble.add(fault_from_json(json.loads(await request.read())))
        except FaultError as error:
            return _refused(error.field, value=error.value, allowed=error.allowed)
        except (ValueError, RecursionError) as error:
            return _refused("the body", value=str(error), allowed="a JSON object")
        return web.json_response(armed_document(armed), status=201)

    async def get(_: web.Request) -> web.Response:
        return _listed(trouble.armed)

    async def delete(request: web.Request) -> web.Response:
        fault_id = request.match_info.get("id")
        cleared = trouble.clear(fault_id)
        if fault_id is not None and len(cleared) == 0:
            known = ", ".join(each.id for each in trouble.armed)
            return _refused("id", value=fault_id, allowed="none is set" if known == "" else known, status=404)
        return _listed(cleared)

    router.add_post(_PATH, guarded(post, guard=guard), expect_handler=go_on)
    router.add_get(_PATH, guarded(get, guard=guard), expect_handler=go_on)
    router.add_delete(_PATH, guarded(delete, guard=guard), expect_handler=go_on)
    router.add_delete(_PATH + "/{id}", guarded(delete, guard=guard), expect_handler=go_on)


def _listed(armed: Iterable[Armed]) -> web.Response:
    return web.json_response({"faults": [armed_document(each) for each in armed]})


def _refused(field: str, *, value: object, allowed: str, status: int = 400) -> web.Response:
    error = FaultError(field, value=value, allowed=allowed)
    return web.json_response({"error": str(error), "field": field, "allowed": allowed}, status=status)
