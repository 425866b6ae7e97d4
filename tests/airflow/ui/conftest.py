from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.airflow.conftest import UNREACHABLE, define_connection
from tests.airflow.ui.support.page_client import api_server_app, auth_header


@pytest.fixture(scope="session")
def api_server(airflow_db: Path) -> Iterator[TestClient]:  # noqa: ARG001  the tables must exist
    """Airflow's API server with the plugin mounted."""
    with api_server_app() as client:
        yield client


@pytest.fixture
def page(api_server: TestClient) -> Iterator[TestClient]:
    """The plugin's application with a cache that refreshes every half second, signed in as admin."""
    from servicebus_pair.ui.api.routes import build_app
    from servicebus_pair.ui.cache.refresh_cache import RefreshCache

    cache = RefreshCache(interval=0.5)
    try:
        with TestClient(build_app(cache), headers=auth_header(api_server, "admin")) as client:
            yield client
    finally:
        cache.close()


@pytest.fixture
def unreachable_pair(monkeypatch: pytest.MonkeyPatch, fresh_state: None) -> None:  # noqa: ARG001  order
    """A pair whose namespaces do not exist."""
    define_connection(monkeypatch, UNREACHABLE)
