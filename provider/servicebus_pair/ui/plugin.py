"""The Airflow plugin. Every component imports it, so it imports the API server's parts only when asked for them."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from servicebus_pair.ui import listener

__all__ = ["ServiceBusPairPlugin"]

_PREFIX = "/servicebus-pairs"


class ServiceBusPairPlugin(AirflowPlugin):
    """Serves the page and the API under ``/servicebus-pairs``; its listener hears of failovers."""

    name = "servicebus_pair"
    listeners = [listener]  # noqa: RUF012  the base class declares it so
    external_views = [  # noqa: RUF012  the base class declares it so
        {
            "name": "Service Bus pairs",
            "href": f"{_PREFIX}/",
            "destination": "nav",
            "category": "browse",
            "url_route": "servicebus-pairs",
        }
    ]

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The application, built once, in the API server only: its guards cost half a second to import."""
        from servicebus_pair.ui.api import build_app

        return [{"app": build_app(), "url_prefix": _PREFIX, "name": "Service Bus pairs"}]
