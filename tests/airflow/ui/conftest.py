from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.airflow.conftest import UNREACHABLE, define_connection
from tests.airflow.ui.support.page_client import api_server_app, auth_header, page_with


@pytest.fixture(scope="session")
def api_server(airflow_db: Path) -> Iterator[TestClient]:  # noqa: ARG001  the tables must exist
    """Airflow's API server with the plugin mounted."""
    with api_server_app() as client:
        yield client


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """The root of the reports that the page shows."""
    root = tmp_path / "output"
    root.mkdir()
    return root


@pytest.fixture
def page(api_server: TestClient, reports: Path) -> Iterator[TestClient]:
    """The plugin's application with a cache that refreshes every half second, signed in as admin."""
    with page_with(str(reports), headers=auth_header(api_server, "admin")) as client:
        yield client


@pytest.fixture
def unreachable_pair(monkeypatch: pytest.MonkeyPatch, fresh_state: None) -> None:  # noqa: ARG001  order
    """A pair whose namespaces do not exist."""
    define_connection(monkeypatch, UNREACHABLE)
