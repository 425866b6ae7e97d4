"""Test clients of the page: inside Airflow's API server, and alone with a cache of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from fastapi.testclient import TestClient

from tests.airflow.conftest import AIRFLOW_HOME, CONN_ID

PAIR_URL: Final = f"/api/pairs/{CONN_ID}"
# An admin, an op, a user and a viewer; each password is the user's name.
USERS: Final = ("admin", "otto", "una", "vic")


@contextmanager
def api_server_app() -> Iterator[TestClient]:
    """Airflow's API server with the plugin mounted."""
    from airflow.api_fastapi.app import create_app

    (AIRFLOW_HOME / "passwords.json").write_text(json.dumps({name: name for name in USERS}))
    with TestClient(create_app(), raise_server_exceptions=False) as client:
        yield client


@contextmanager
def page_with(
    reports: str | None, *, headers: Mapping[str, str], pairs: Collection[str] | None = ("*",)
) -> Iterator[TestClient]:
    """The plugin's application alone, with a cache that refreshes every half second."""
    from servicebus_pair.ui.api.routes import build_app
    from servicebus_pair.ui.cache.refresh_cache import RefreshCache
    from servicebus_pair.ui.sources.reports import ReportStore

    cache = RefreshCache(interval=0.5, reports=ReportStore(reports), pairs=pairs)
    try:
        with TestClient(build_app(cache), headers=dict(headers)) as client:
            yield client
    finally:
        cache.close()


def auth_header(api_server: TestClient, user: str) -> dict[str, str]:
    """Sign in and return the Authorization header."""
    response = api_server.post("/auth/token", json={"username": user, "password": user})
    return {"Authorization": f"Bearer {response.json()['access_token']}"}


def wait_for_pair(page: TestClient, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Return the pair's JSON as soon as it satisfies the condition, within 20 s."""
    deadline = time.monotonic() + 20
    while True:
        pair: dict[str, Any] = page.get(PAIR_URL).json()
        if "conn_id" in pair and condition(pair):
            return pair
        assert time.monotonic() < deadline, json.dumps(pair, indent=1)
        time.sleep(0.1)
