"""The page of the pairs as tests ask it: in Airflow's API server, and alone with a cache of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tests.airflow.conftest import AIRFLOW_HOME, CONN_ID, KEY

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

__all__ = ["PAIR", "USERS", "api_server_app", "connection_to_nowhere", "page_app", "shown", "token"]

PAIR: Final = f"/api/pairs/{CONN_ID}"
USERS: Final = ("admin", "otto", "una", "vic")
"""An admin, an op, a user and a viewer; each one's password is the name."""


@contextmanager
def api_server_app() -> Iterator[TestClient]:
    """Airflow's API server with the plugin mounted."""
    from airflow.api_fastapi.app import create_app
    from fastapi.testclient import TestClient

    (AIRFLOW_HOME / "passwords.json").write_text(json.dumps({name: name for name in USERS}))
    with TestClient(create_app(), raise_server_exceptions=False) as client:
        yield client


@contextmanager
def page_app(api_server: TestClient) -> Iterator[TestClient]:
    """The plugin's application with a cache of its own, which looks every half second; signed in as admin."""
    from fastapi.testclient import TestClient

    from servicebus_pair.ui.api import build_app
    from servicebus_pair.ui.watching import Watch

    watch = Watch(interval=0.5)
    try:
        with TestClient(build_app(watch), headers=token(api_server, "admin")) as client:
            yield client
    finally:
        watch.close()


def connection_to_nowhere() -> str:
    """A connection to two namespaces that are not there, for those to whom that does not matter."""
    endpoints = {
        f"{side}_{name}": value
        for side, port in (("primary", 1), ("secondary", 2))
        for name, value in {
            "connection_string": f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=Root;SharedAccessKey={KEY};"
            "UseDevelopmentEmulator=true;",
            "namespace": f"contoso-{side}",
        }.items()
    }
    return json.dumps({"conn_type": "servicebus_pair", "extra": endpoints})


def token(api_server: TestClient, user: str) -> dict[str, str]:
    """The header of somebody who has signed in."""
    answer = api_server.post("/auth/token", json={"username": user, "password": user})
    return {"Authorization": f"Bearer {answer.json()['access_token']}"}


def shown(page: TestClient, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The pair as soon as it is so."""
    deadline = time.monotonic() + 20
    while True:
        pair: dict[str, Any] = page.get(PAIR).json()
        if "conn_id" in pair and condition(pair):
            return pair
        assert time.monotonic() < deadline, json.dumps(pair, indent=1)
        time.sleep(0.1)
