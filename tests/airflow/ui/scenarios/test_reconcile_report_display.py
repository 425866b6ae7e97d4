"""The reconcile report of a recovery that a failover event triggered."""

from __future__ import annotations

from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.airflow.conftest import CONN_ID, RunDag
from tests.airflow.ui.support.page_client import PAIR_URL, wait_for_pair

pytestmark = pytest.mark.usefixtures("unreachable_pair")


def run_recovery(run_dag: RunDag, report: str) -> str:
    """Run a recovery triggered by a failover event that returns the path of its report; return the run id."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.models.dagrun import DagRun
    from airflow.sdk import DAG, task
    from airflow.utils.session import create_session
    from sqlalchemy import select

    from servicebus_pair.assets import failover_asset

    @task(task_id="report")
    def return_report() -> dict[str, object]:
        return {"report": report, "lost": 0, "moved": {"flights": 3}, "queues": 2}

    with DAG("flights_recovery", schedule=failover_asset(CONN_ID)) as dag:
        return_report()
    run = run_dag(dag)
    with create_session() as session:
        asset = session.scalars(select(AssetModel).where(AssetModel.name == failover_asset(CONN_ID).name)).one()
        event = AssetEvent(asset_id=asset.id, extra={"entity": "flights", "reason": "Unreachable", "by": "send"})
        event.created_dagruns.append(session.scalars(select(DagRun).where(DagRun.id == run.id)).one())
        session.add(event)
    return str(run.run_id)


def test_report_of_an_incident_is_served_in_a_sandbox(run_dag: RunDag, page: TestClient, tmp_path: Path):
    file = tmp_path / "report.html"
    file.write_text("<h1>No message was lost</h1><script>alert(1)</script>")
    run_id = run_recovery(run_dag, str(file))
    seen = wait_for_pair(page, lambda pair: pair["incidents"] and pair["incidents"][0]["runs"])

    response = page.get(f"{PAIR_URL}/reports/flights_recovery/{run_id}")

    (run,) = seen["incidents"][0]["runs"]
    assert (run["report"], run["result"]) == (True, {"lost": 0, "moved": {"flights": 3}})
    assert (response.status_code, response.text) == (200, file.read_text())
    assert response.headers["content-security-policy"].startswith("sandbox; default-src 'none'")


def test_unknown_runs_and_pairs_have_no_report(page: TestClient):
    wait_for_pair(page, lambda pair: pair["conn_id"])

    for path in (f"{PAIR_URL}/reports/flights_recovery/none", "/api/pairs/none/reports/flights_recovery/none"):
        assert page.get(path).status_code == 404
