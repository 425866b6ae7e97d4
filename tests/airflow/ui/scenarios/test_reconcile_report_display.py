"""The reconcile report of a recovery that a failover event triggered."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tests.airflow.conftest import RunDag
from tests.airflow.ui.support.page_client import PAIR_URL, wait_for_pair
from tests.airflow.ui.support.recovery import run_recovery, write_report

pytestmark = pytest.mark.usefixtures("unreachable_pair")


def test_report_of_an_incident_is_served_in_a_sandbox(run_dag: RunDag, page: TestClient, reports: Path):
    run_id = run_recovery(run_dag, {"report": True, "lost": 0, "moved": {"flights": 3}, "queues": 2})
    folder = write_report(
        reports,
        "flights_recovery",
        run_id,
        "<h1>Not proven</h1><script>alert(1)</script>",
        lost=1,
        verdict="not proven",
    )
    seen = wait_for_pair(
        page, lambda pair: pair["incidents"] and [run["lost"] for run in pair["incidents"][0]["runs"]] == [1]
    )

    response = page.get(f"{PAIR_URL}/reports/flights_recovery/{run_id}")

    (run,) = seen["incidents"][0]["runs"]
    # What a task reported is apart from what the job proved.
    assert (run["report"], run["reported"], run["lost"]) == (True, {"lost": 0, "moved": {"flights": 3}}, 1)
    assert run["verdict"] == "not proven"
    assert (response.status_code, response.text) == (200, (folder / "report.html").read_text())
    assert response.headers["content-security-policy"].startswith("sandbox; default-src 'none'")
    assert json.loads((folder / "summary.json").read_text())["totals"]["lost"] == 1
