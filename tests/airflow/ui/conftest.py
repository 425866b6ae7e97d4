from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.airflow.conftest import CONN_ID
from tests.airflow.ui.support.page_client import api_server_app, page_app, unreachable_connection


@pytest.fixture(scope="session")
def api_server(airflow_db: Path) -> Iterator[TestClient]:  # noqa: ARG001  the tables must exist
    """Airflow's API server with the plugin mounted."""
    with api_server_app() as client:
        yield client


@pytest.fixture
def page(api_server: TestClient) -> Iterator[TestClient]:
    """Client of the plugin's application with a cache of its own, signed in as admin."""
    with page_app(api_server) as client:
        yield client


@pytest.fixture
def unreachable_pair(monkeypatch: pytest.MonkeyPatch, fresh_state: None) -> None:  # noqa: ARG001  order
    """A pair whose namespaces do not exist."""
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONN_ID.upper()}", unreachable_connection())
