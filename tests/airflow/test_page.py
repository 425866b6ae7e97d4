"""What the page of the pairs knows, in real API server applications with both namespaces running."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from tests.airflow.conftest import CONN_ID, KEY, Pair, RunDag, run_task
from tests.airflow.pages import shown
from tests.airflow.queues import divert
from tests.airflow.test_sending import provision, send

if TYPE_CHECKING:
    from fastapi.testclient import TestClient


@pytest.mark.apart
def test_a_failover_is_shown_with_its_reason_and_the_way_that_the_messages_took(
    pair: Pair, run_dag: RunDag, page: TestClient
):
    run_task(run_dag, provision)
    pair.primary.kill()
    run_task(run_dag, send)

    seen = shown(page, lambda pair: pair["backlog"]["messages"] == 2 and pair["primary"]["reachable"] is False)

    (entity,) = seen["entities"]
    assert (entity["entity"], entity["state"], entity["by"], entity["by_hand"]) == (
        "flights",
        "failed_over",
        "send",
        False,
    )
    assert (entity["primary"], entity["backlog"]) == (0, 2)
    assert (seen["primary"]["name"], seen["secondary"]["name"]) == ("contoso", "contoso-dr")
    assert (seen["secondary"]["reachable"], seen["secondary"]["error"]) == (True, None)
    assert [(queue["state"], queue["path"][-1]) for queue in seen["backlog"]["queues"]] == [
        ("in use", "0"),
        ("in use", "1"),
    ]
    assert (seen["sends"]["primary"], seen["sends"]["backlog"]) == (0, 2)
    assert seen["cost"]["operations"]["diverts"] == 2
    assert seen["cost"]["quiet_day"] == 192
    (incident,) = seen["incidents"]
    assert (incident["entity"], incident["until"], incident["runs"][0]["dag_id"]) == ("flights", None, "tasks")
    assert KEY not in page.get("/api/snapshot").text


@pytest.mark.apart
def test_a_recovery_without_a_report_belongs_to_its_incident_too(pair: Pair, run_dag: RunDag, page: TestClient):
    from airflow.sdk import DAG

    from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator

    run_task(run_dag, provision)
    pair.primary.kill()
    run_task(run_dag, send)
    pair.primary.start()
    with DAG("brings_home", schedule=None) as dag:
        ServiceBusPairSyphonOperator(task_id="drain", conn_id=CONN_ID, entities=["flights"])
    run = run_dag(dag)

    seen = shown(page, lambda pair: len(pair["incidents"][0]["runs"]) > 1 if pair["incidents"] else False)

    (incident,) = seen["incidents"]
    told = [(each["dag_id"], each["run_id"], each["result"].get("moved")) for each in incident["runs"]]
    assert told[-1] == ("brings_home", run.run_id, {"flights": 2})
    assert incident["until"] is not None
    (entity,) = seen["entities"]
    assert (entity["state"], entity["backlog"], entity["home"]) == ("healthy", 2, 2)


def test_a_frozen_namespace_does_not_hold_the_page_up_and_what_was_known_stays(pair: Pair, page: TestClient):
    asyncio.run(divert(pair, count=3))
    shown(page, lambda pair: pair["backlog"]["messages"] == 3)
    pair.secondary.freeze()
    try:
        seen = shown(page, lambda pair: pair["secondary"]["reachable"] is False and pair["backlog"]["error"])
        began = time.monotonic()
        answer = page.get("/api/snapshot")
    finally:
        pair.secondary.thaw()

    assert answer.status_code == 200
    assert time.monotonic() - began < 0.3
    assert (seen["backlog"]["messages"], seen["secondary"]["error"]) == (3, "no answer within 3 s")


@pytest.mark.usefixtures("pair")
def test_however_many_look_each_namespace_is_read_once_per_interval(page: TestClient):
    before = shown(page, lambda pair: pair["backlog"]["counted_at"] is not None)["cost"]["page"]
    began = time.monotonic()

    for _ in range(200):
        page.get("/api/snapshot")
    after = shown(page, lambda pair: pair["cost"]["page"] > before)["cost"]["page"]

    # A call for each look, every half second, and one more for the comparison of each minute.
    assert after - before <= (time.monotonic() - began) / 0.5 + 2
