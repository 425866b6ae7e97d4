"""The page and its API, in a real API server application: who may see them, and what they show."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from servicebus_pair.ui.overview import BacklogView, EntityView, PairView
from servicebus_pair.ui.page import render
from tests.airflow.conftest import AIRFLOW_HOME, CONN_ID, KEY, Pair, RunDag, run_task
from tests.airflow.test_sending import provision, send

if TYPE_CHECKING:
    from pathlib import Path

    from fastapi.testclient import TestClient


@pytest.fixture(scope="module")
def api_server(airflow_db: Path) -> Iterator[TestClient]:  # noqa: ARG001  the tables must exist
    """Airflow's API server with the plugin mounted."""
    from airflow.api_fastapi.app import create_app
    from fastapi.testclient import TestClient

    (AIRFLOW_HOME / "passwords.json").write_text(json.dumps({"admin": "admin", "vic": "vic"}))
    with TestClient(create_app(), raise_server_exceptions=False) as client:
        yield client


def token(api_server: TestClient, user: str) -> dict[str, str]:
    answer = api_server.post("/auth/token", json={"username": user, "password": user})
    return {"Authorization": f"Bearer {answer.json()['access_token']}"}


@pytest.mark.parametrize("path", ["/servicebus-pairs/", "/servicebus-pairs/api/pairs"])
def test_nobody_sees_anything_without_signing_in(api_server: TestClient, path: str):
    answer = api_server.get(path)

    assert (answer.status_code, answer.json()) == (401, {"detail": "Not authenticated"})


@pytest.mark.parametrize(
    "path", ["/servicebus-pairs/api/none", "/servicebus-pairs/openapi.json", "/servicebus-pairs/docs"]
)
def test_an_unknown_path_is_not_found_and_says_so_in_json(api_server: TestClient, path: str):
    answer = api_server.get(path, headers=token(api_server, "admin"))

    assert (answer.status_code, answer.json()) == (404, {"detail": "Not Found"})


def test_a_viewer_sees_each_pair_its_health_and_its_backlog(pair: Pair, run_dag: RunDag, api_server: TestClient):
    run_task(run_dag, provision)
    pair.primary.kill()
    run_task(run_dag, send)

    answer = api_server.get("/servicebus-pairs/api/pairs", headers=token(api_server, "vic"))
    page = api_server.get("/servicebus-pairs/", headers=token(api_server, "vic"))

    (shown,) = answer.json()["pairs"]
    assert answer.status_code == page.status_code == 200
    assert (shown["conn_id"], shown["primary"], shown["secondary"]) == (CONN_ID, "contoso", "contoso-dr")
    assert [(entity["entity"], entity["state"]) for entity in shown["entities"]] == [("flights", "failed_over")]
    assert shown["backlog"] == {"queues": 2, "messages": 2, "dead_lettered": 0, "error": None}
    assert "failed_over" in page.text
    assert KEY not in answer.text + page.text


def test_a_frozen_secondary_does_not_hold_the_page_up(pair: Pair, api_server: TestClient):
    pair.secondary.freeze()

    answer = api_server.get("/servicebus-pairs/api/pairs", headers=token(api_server, "admin"))
    pair.secondary.thaw()

    assert answer.json()["pairs"][0]["backlog"]["error"] == "no answer from contoso-dr within 3 s"


def test_everything_that_others_wrote_is_escaped():
    hostile = "<script>alert('x')</script>"
    page = render(
        [
            PairView(hostile, hostile, hostile, (EntityView(hostile, hostile, 1.0, hostile, hostile),), BacklogView()),
            PairView("other", None, None, (), BacklogView(error=hostile)),
        ]
    )

    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 9
