"""The page during an outage and after the recovery, with both namespaces and real task runs."""

from __future__ import annotations

from airflow.sdk import DAG
from fastapi.testclient import TestClient

from servicebus_pair.airflow_runtime.airflow_version import has
from tests.airflow.conftest import BACKLOG, KEY, Pair, RunDag, run_task
from tests.airflow.support.tasks import drain, provision, send
from tests.airflow.ui.support.page_client import wait_for_pair


def test_failover_and_recovery_are_displayed_with_routes_cost_and_runs(pair: Pair, run_dag: RunDag, page: TestClient):
    counted = (0, 2) if has("task_state") else (None, None)
    run_task(run_dag, provision)
    pair.primary.kill()
    run_task(run_dag, send)

    seen = wait_for_pair(page, lambda pair: pair["backlog"]["messages"] == 2 and pair["primary"]["reachable"] is False)

    (entity,) = seen["entities"]
    assert (entity["entity"], entity["state"]) == ("flights", "failed_over")
    assert (entity["by"], entity["by_hand"]) == ("send", False)
    assert (entity["primary"], entity["backlog"]) == counted
    assert (seen["primary"]["name"], seen["secondary"]["name"]) == ("contoso", "contoso-dr")
    assert (seen["secondary"]["reachable"], seen["secondary"]["error"]) == (True, None)
    assert [(queue["state"], queue["path"]) for queue in seen["backlog"]["queues"]] == [
        ("in use", path) for path in BACKLOG
    ]
    assert (seen["sends"]["primary"], seen["sends"]["backlog"]) == counted
    assert seen["cost"]["operations"].get("diverts") == counted[1]
    assert seen["cost"]["quiet_day"] == 192
    (incident,) = seen["incidents"]
    assert (incident["entity"], incident["until"], incident["runs"][0]["dag_id"]) == ("flights", None, "tasks")
    assert KEY not in page.get("/api/snapshot").text

    pair.primary.start()
    with DAG("drain_backlog", schedule=None) as dag:
        drain(entities=["flights"])
    run = run_dag(dag)
    seen = wait_for_pair(page, lambda pair: pair["incidents"] and len(pair["incidents"][0]["runs"]) > 1)

    # Without a task "report", the results of the drain are part of the incident.
    (incident,) = seen["incidents"]
    last = incident["runs"][-1]
    assert (last["dag_id"], last["run_id"], last["reported"]["moved"]) == ("drain_backlog", run.run_id, {"flights": 2})
    assert incident["until"] is not None
    (entity,) = seen["entities"]
    assert (entity["state"], entity["backlog"], entity["drained"]) == ("healthy", counted[1], counted[1])
