"""An administration server without the rest of the emulator."""

from __future__ import annotations

from collections.abc import Sequence

from servicebus_emulator.admin.access_control import Route
from servicebus_emulator.admin.application import admin_application
from servicebus_emulator.admin.http_server import HttpServer
from servicebus_emulator.engine.namespace.namespace import Namespace
from servicebus_emulator.security.authorizer import Authorizer


def admin_server(
    namespace: Namespace, *, authorizer: Authorizer, port: int = 0, routes: Sequence[Route] = ()
) -> HttpServer:
    """Return a server of a namespace's administration API, not started."""
    return HttpServer(
        lambda: admin_application(namespace, authorizer=authorizer, routes=routes),
        label="the administration API",
        host="127.0.0.1",
        port=port,
        tls=None,
        timeout=20,
    )
