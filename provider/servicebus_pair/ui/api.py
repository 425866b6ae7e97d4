"""The routes that the plugin mounts; every one asks Airflow whether the user may read assets."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.core_api.security import requires_access_asset
from fastapi import Depends, FastAPI
from fastapi.responses import HTMLResponse

from servicebus_pair.ui.overview import overview
from servicebus_pair.ui.page import render

__all__ = ["build_app"]


def build_app() -> FastAPI:
    """Return the application: a mounted one has no authentication but what it asks for itself."""
    app = FastAPI(
        title="Service Bus pairs",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(requires_access_asset("GET"))],
    )

    @app.get("/api/pairs")
    def pairs() -> dict[str, Any]:
        """Every pair with the health of its entities and the depth of its backlog."""
        return {"pairs": [pair.to_json() for pair in overview()]}

    @app.get("/", response_class=HTMLResponse)
    def page() -> str:
        """The same as a page."""
        return render(overview())

    return app
