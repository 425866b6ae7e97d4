"""Requests that need no token from this machine, so that a line in a shell can make them, and one from elsewhere."""

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

Handler = Callable[[web.Request], Awaitable[web.Response]]


def guarded(handler: Handler, *, guard: Guard) -> Handler:
    """Return a handler that lets in who asks from this machine, or shows Manage on the namespace."""

    async def checked(request: web.Request) -> web.Response:
        try:
            _authorize(guard, request=request)
        except Unauthorized as error:
            return web.json_response({"error": str(error)}, status=error.status)
        return await handler(request)

    return checked


def _authorize(guard: Guard, *, request: web.Request) -> None:
    if request.remote is None or not is_loopback(request.remote):
        guard.authorize(request.headers.get("Authorization"), path="", rights=[AccessRight.MANAGE])
