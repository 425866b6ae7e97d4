"""The reconcile report of a recovery, shown inside the page; and a pair whose connection is in the database."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.airflow.conftest import CONN_ID, RunDag
from tests.airflow.pages import PAIR, connection_to_nowhere, shown

if TYPE_CHECKING:
    from pathlib import Path

    from fastapi.testclient import TestClient

pytestmark = pytest.mark.usefixtures("nowhere")


def recovered(run_dag: RunDag, report: str) -> str:
    """Have a failover start a recovery that says where its report is; return the run's id."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.models.dagrun import DagRun
    from airflow.sdk import DAG, task
    from airflow.utils.session import create_session
    from sqlalchemy import select

    from servicebus_pair.hooks.assets import failover_asset

    @task(task_id="report")
    def tell() -> dict[str, object]:
        return {"report": report, "lost": 0, "moved": {"flights": 3}, "queues": 2}

    with DAG("flights_recovery", schedule=failover_asset(CONN_ID)) as dag:
        tell()
    run = run_dag(dag)
    with create_session() as session:
        asset = session.scalars(select(AssetModel).where(AssetModel.name == failover_asset(CONN_ID).name)).one()
        event = AssetEvent(asset_id=asset.id, extra={"entity": "flights", "reason": "Unreachable", "by": "send"})
        event.created_dagruns.append(session.scalars(select(DagRun).where(DagRun.id == run.id)).one())
        session.add(event)
    return str(run.run_id)


def test_an_incident_has_the_report_of_its_recovery_which_can_run_nothing(
    run_dag: RunDag, page: TestClient, tmp_path: Path
):
    file = tmp_path / "report.html"
    file.write_text("<h1>Nothing was lost</h1><script>alert(1)</script>")
    run_id = recovered(run_dag, str(file))
    seen = shown(page, lambda pair: pair["incidents"] and pair["incidents"][0]["runs"])

    answer = page.get(f"{PAIR}/reports/flights_recovery/{run_id}")

    (run,) = seen["incidents"][0]["runs"]
    assert (run["report"], run["result"]) == (True, {"lost": 0, "moved": {"flights": 3}})
    assert (answer.status_code, answer.text) == (200, file.read_text())
    assert answer.headers["content-security-policy"].startswith("sandbox; default-src 'none'")


@pytest.mark.parametrize("name", ["secrets.txt", "gone/report.html"])
def test_a_file_that_is_no_report_or_not_kept_here_is_not_shown(
    run_dag: RunDag, page: TestClient, tmp_path: Path, name: str
):
    (tmp_path / "secrets.txt").write_text("secret")
    run_id = recovered(run_dag, str(tmp_path / name))
    shown(page, lambda pair: pair["incidents"] and pair["incidents"][0]["runs"])

    for path in (f"{PAIR}/reports/flights_recovery/{run_id}", f"{PAIR}/reports/flights_recovery/none"):
        answer = page.get(path)
        assert (answer.status_code, "no report" in answer.json()["detail"]) == (404, True)
    assert page.get(f"/api/pairs/none/reports/flights_recovery/{run_id}").status_code == 404


def test_a_pair_whose_connection_is_in_the_database_is_shown_too(page: TestClient, monkeypatch: pytest.MonkeyPatch):
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session

    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")  # as the API server's own process has it
    extra = json.loads(connection_to_nowhere())["extra"]
    with create_session() as session:
        session.add(Connection(conn_id="stored_pair", conn_type="servicebus_pair", extra=json.dumps(extra)))
    try:
        shown(page, lambda pair: pair["conn_id"])
        stored = page.get("/api/pairs/stored_pair").json()
    finally:
        with create_session() as session:
            session.query(Connection).filter(Connection.conn_id == "stored_pair").delete()

    assert (stored["problem"], stored["primary"]["name"]) == (None, "contoso-primary")
