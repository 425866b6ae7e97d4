"""``GET /health``: whether a namespace is ready, for readiness and liveness probes."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import TYPE_CHECKING

from aiohttp import web

from servicebus_emulator.admin.access_control import Route

if TYPE_CHECKING:
    from collections.abc import Callable

    from servicebus_emulator.engine.namespace.namespace import Namespace


def health_route(
    namespace: Namespace,
    *,
    version: Callable[[], str],
    is_healthy: Callable[[], bool],
    started_at: float,
    clock: Callable[[], float] = time.monotonic,
) -> Route:
    """Return the route that answers 200 with ``ok``, or 503 with ``failed``.

    :param is_healthy: returns whether the state can still be made durable.
    :param started_at: when the namespace was started, by the clock.
    :param clock: a monotonic clock in seconds.
    """

    async def get(_: web.Request) -> web.Response:
        healthy = is_healthy()
        topics = namespace.list_topics()
        document = {
            "status": "ok" if healthy else "failed",
            "namespace": namespace.name,
            "version": version(),
            "uptime_seconds": round(clock() - started_at, 3),
            "queues": len(namespace.list_queues()),
            "topics": len(topics),
            "subscriptions": sum(len(namespace.list_subscriptions(topic.path)) for topic in topics),
        }
        return web.json_response(document, status=HTTPStatus.OK if healthy else HTTPStatus.SERVICE_UNAVAILABLE)

    return Route(method="GET", path="/health", handler=get, public=True)
