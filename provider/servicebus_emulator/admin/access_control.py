"""Access to the routes of the administration port that are not part of the administration API, such as faults.

Requests from this machine need no token, so that shell commands work; requests from elsewhere need a token with
Manage on the namespace.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aiohttp import web

from servicebus_emulator.engine.model.descriptions import AccessRight
from servicebus_emulator.engine.model.errors import Unauthorized
from servicebus_emulator.security.settings import is_loopback

if TYPE_CHECKING:
    from servicebus_emulator.security.authorizer import Authorizer

__all__ = ["Handler", "require_manage"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def require_manage(handler: Handler, *, authorizer: Authorizer) -> Handler:
    """Return a handler that answers 401 to a request from elsewhere without a token for Manage."""

    async def checked(request: web.Request) -> web.StreamResponse:
        if request.remote is None or not is_loopback(request.remote):
            try:
                authorizer.authorize(request.headers.get("Authorization"), path="", rights=[AccessRight.MANAGE])
            except Unauthorized as error:
                return web.json_response({"error": str(error)}, status=error.status)
        return await handler(request)

    return checked
