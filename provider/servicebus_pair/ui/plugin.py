"""The Airflow plugin.

Every Airflow component imports this module at startup, so FastAPI and the routes are imported only in the API server.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from servicebus_pair.ui import listener

_URL_PREFIX = "/servicebus-pairs"


class ServiceBusPairPlugin(AirflowPlugin):
    """Serve the page and API under ``/servicebus-pairs`` and register the failover listener."""

    name = "servicebus_pair"
    listeners = [listener]  # noqa: RUF012  the base class declares it so
    external_views = [  # noqa: RUF012  the base class declares it so
        {
            "name": "Service Bus pairs",
            "href": f"{_URL_PREFIX}/",
            "destination": "nav",
            "category": "browse",
            "url_route": "servicebus-pairs",
        }
    ]

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The FastAPI application; a property because importing it takes half a second."""
        from servicebus_pair.ui.api.routes import build_app

        return [{"app": build_app(), "url_prefix": _URL_PREFIX, "name": "Service Bus pairs"}]
