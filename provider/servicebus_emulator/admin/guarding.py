"""Who may use what the administration port serves beside the administration API, such as faults.

Whoever asks from this machine needs no token, so that a shell command will do; from elsewhere a request needs a
token with Manage on the namespace, as the administration API does from everywhere.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from aiohttp import web

from servicebus_emulator.engine.descriptions import AccessRight
from servicebus_emulator.engine.errors import Unauthorized
from servicebus_emulator.security.settings import is_loopback

if TYPE_CHECKING:
    from servicebus_emulator.security.guard import Guard

__all__ = ["Handler", "guarded"]

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def guarded(handler: Handler, *, guard: Guard) -> Handler:
    """Return a handler that refuses, with 401, who may not use `handler`.

    :param guard: checks who asks from elsewhere.
    """

    async def checked(request: web.Request) -> web.StreamResponse:
        if request.remote is None or not is_loopback(request.remote):
            try:
                guard.authorize(request.headers.get("Authorization"), path="", rights=[AccessRight.MANAGE])
            except Unauthorized as error:
                return web.json_response({"error": str(error)}, status=error.status)
        return await handler(request)

    return checked
