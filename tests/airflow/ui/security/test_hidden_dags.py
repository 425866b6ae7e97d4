"""A viewer who may not read a DAG sees nothing of its runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.airflow.conftest import CONN_ID, RunDag
from tests.airflow.ui.support.page_client import PAIR_URL, auth_header, wait_for_pair
from tests.airflow.ui.support.recovery import run_recovery, write_report

HIDDEN = "flights_recovery"


@pytest.fixture
def only_admins_read_the_recovery(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

    allowed = SimpleAuthManager.is_authorized_dag

    def is_authorized(self: Any, *, user: Any, details: Any = None, **arguments: Any) -> bool:
        if user.username != "admin" and details is not None and details.id == HIDDEN:
            return False
        return allowed(self, user=user, details=details, **arguments)

    monkeypatch.setattr(SimpleAuthManager, "is_authorized_dag", is_authorized)


@pytest.fixture
def another_team_has_the_recovery(monkeypatch: pytest.MonkeyPatch, airflow_db: Path) -> Iterator[None]:  # noqa: ARG001
    from airflow.models import dag
    from airflow.models.team import Team, dag_bundle_team_association_table
    from airflow.utils.session import create_session

    monkeypatch.setenv("AIRFLOW__CORE__MULTI_TEAM", "True")
    # Where Airflow keeps the teams of earlier tests.
    getattr(dag, "_team_name_cache", {}).clear()
    row = {"dag_bundle_name": "dags-folder", "team_name": "another"}
    with create_session() as session:
        session.add(Team(name="another"))
        session.flush()
        session.execute(dag_bundle_team_association_table.insert().values(**row))
    yield
    with create_session() as session:
        session.execute(dag_bundle_team_association_table.delete())
        session.query(Team).delete()
    getattr(dag, "_team_name_cache", {}).clear()


@pytest.mark.parametrize("hidden", ["only_admins_read_the_recovery", "another_team_has_the_recovery"])
@pytest.mark.usefixtures("unreachable_pair")
def test_runs_of_a_dag_are_shown_to_its_readers_only(
    run_dag: RunDag,
    api_server: TestClient,
    page: TestClient,
    reports: Path,
    *,
    hidden: str,
    request: pytest.FixtureRequest,
):
    run_id = run_recovery(run_dag, {"report": True, "lost": 0, "moved": {"flights": 3}})
    write_report(reports, HIDDEN, run_id, "<h1>Report</h1>", lost=0)
    _write_audit_log(run_id)
    # Not before the run: Airflow then asks its configuration for the teams.
    request.getfixturevalue(hidden)
    seen = wait_for_pair(page, lambda pair: pair["incidents"] and pair["incidents"][0]["runs"] and pair["action_log"])
    viewer = auth_header(api_server, "vic")
    url = f"{PAIR_URL}/reports/{HIDDEN}/{run_id}"

    responses = [page.get(path, headers=viewer) for path in (PAIR_URL, "/api/snapshot")]
    report = page.get(url, headers=viewer)

    assert HIDDEN in str(seen["incidents"])
    assert HIDDEN in str(seen["action_log"])
    assert [response.status_code for response in responses] == [200, 200]
    assert [response.json().get("may_act") for response in responses] == [None, False]
    assert not [response for response in responses if HIDDEN in response.text or run_id in response.text]
    assert responses[0].json()["incidents"][0]["entity"] == "flights"
    assert (report.status_code, page.get(url).status_code) == (404, 200)


def _write_audit_log(run_id: str) -> None:
    import json

    from airflow.models.log import Log
    from airflow.utils.session import create_session

    extra = json.dumps({"conn_id": CONN_ID, "action": "start_syphon", "reason": "a test"})
    with create_session() as session:
        session.add(Log(event="servicebus_pair", owner="admin", extra=extra, dag_id=HIDDEN, run_id=run_id))
