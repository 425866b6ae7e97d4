"""The routes of the administration port that are not part of the administration API, such as faults, and their access.

Requests from this machine need no token, so that shell commands work; requests from elsewhere need a token with
Manage on the namespace. A request from this machine must name it, by ``localhost`` or a loopback address: a browser
here that a foreign page sends to its own host name, rebound to this machine, names that host.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from servicebus_emulator.engine.model.descriptions import AccessRight
from servicebus_emulator.engine.model.errors import Unauthorized
from servicebus_emulator.security.settings import is_loopback, names_this_machine

if TYPE_CHECKING:
    from servicebus_emulator.security.authorizer import Authorizer

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A handler for a method and a path.

    :ivar public: whether it needs no token.
    """

    method: str
    path: str
    handler: Handler
    public: bool = False


def require_manage(handler: Handler, *, authorizer: Authorizer) -> Handler:
    """Return a handler that answers 401 to a request from elsewhere without a token for Manage."""

    async def checked(request: web.Request) -> web.StreamResponse:
        named = names_this_machine(request.headers.get("Host", ""))
        if request.remote is None or not is_loopback(request.remote) or not named:
            try:
                authorizer.authorize(request.headers.get("Authorization"), path="", rights=[AccessRight.MANAGE])
                check_host(request, well_known=authorizer.well_known)
            except Unauthorized as error:
                return web.json_response({"error": str(error)}, status=error.status)
        return await handler(request)

    return checked


def require_this_host(handler: Handler) -> Handler:
    """Return a handler that answers 401 to a request from this machine that names another host."""

    async def checked(request: web.Request) -> web.StreamResponse:
        try:
            check_host(request, well_known=True)  # as it needs no token
        except Unauthorized as error:
            return web.json_response({"error": str(error)}, status=error.status)
        return await handler(request)

    return checked


def check_host(request: web.Request, *, well_known: bool) -> None:
    """Check the host that a request from this machine names, where anybody can have a token.

    :param well_known: whether no token is read, or the key or secret behind it is the one of the documentation: then a
        page whose name is rebound to this machine can make a token itself.
    :raises Unauthorized: it is not this machine.
    """
    if not well_known:
        return
    here = request.remote is not None and is_loopback(request.remote)
    if here and not names_this_machine(request.headers.get("Host", "")):
        raise Unauthorized("InvalidHost: the header Host does not name this machine; allowed: localhost")
