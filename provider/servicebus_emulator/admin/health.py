"""``GET /health``: whether a namespace is ready, for probes of whoever runs the emulator."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import TYPE_CHECKING

from aiohttp import web

from servicebus_emulator.admin.pages import Page

if TYPE_CHECKING:
    from collections.abc import Callable

    from servicebus_emulator.engine.namespace import Namespace

__all__ = ["health_page"]


def health_page(
    namespace: Namespace,
    *,
    version: Callable[[], str],
    works: Callable[[], bool],
    seconds: Callable[[], float] = time.monotonic,
) -> Page:
    """Return the page that says how a namespace is: 200 with ``ok``, or 503 with ``failed`` when it keeps no state.

    :param version: returns that of the emulator.
    :param works: tells whether its state can still be made durable.
    :param seconds: a clock that never goes back; uptime counts from now on.
    """
    begun = seconds()

    async def get(_: web.Request) -> web.Response:
        working = works()
        topics = namespace.list_topics()
        document = {
            "status": "ok" if working else "failed",
            "namespace": namespace.name,
            "version": version(),
            "uptime_seconds": round(seconds() - begun, 3),
            "queues": len(namespace.list_queues()),
            "topics": len(topics),
            "subscriptions": sum(len(namespace.list_subscriptions(topic.path)) for topic in topics),
        }
        return web.json_response(document, status=HTTPStatus.OK if working else HTTPStatus.SERVICE_UNAVAILABLE)

    return Page(method="GET", path="/health", answer=get, public=True)
