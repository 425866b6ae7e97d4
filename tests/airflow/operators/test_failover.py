"""Manual failover and failback."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock

import pytest
from airflow.sdk import task

from servicebus_pair.assets import pair_asset
from servicebus_pair.core.model.health_state import HealthState
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from tests.airflow.conftest import CONN_ID, LogOfFailure, RunDag, events, run_task, shared_health
from tests.airflow.support.tasks import fail_back, fail_over, provision, send


def decorated_send() -> Any:
    decorate: Any = task.servicebus_send
    return decorate(servicebus_pair_conn_id=CONN_ID, entity="flights", task_id="decorated")(lambda: ["x"])()


def hook_send() -> Any:
    @task(inlets=[pair_asset(CONN_ID)])
    def hook() -> dict[str, int]:
        sent = ServiceBusPairHook(CONN_ID).send("flights", "x")
        return {"primary": sent.primary, "diverted": sent.diverted}

    return hook()


@pytest.mark.usefixtures("pair")
def test_manual_failover_is_shared_emitted_once_and_ended_by_failback(run_dag: RunDag):
    """SPEC section 4: both are recorded with who and when."""
    run_task(run_dag, provision)

    over = run_task(run_dag, fail_over)["fail_over"]
    again = run_task(run_dag, fail_over)["fail_over"]
    held = shared_health("flights")
    diverted = run_task(run_dag, lambda: send(messages=["x"]), decorated_send, hook_send)
    back = run_task(run_dag, lambda: fail_back(by="{{ 'ada' }}"))["fail_back"]
    direct = run_task(run_dag, lambda: send(messages=["x"]))["send"]

    who = "dag_test by tasks"
    assert over == {"changed": ["flights"], "unchanged": [], "by": who, "reason": "maintenance"}
    assert again["unchanged"] == ["flights"]
    assert (held.state, held.by, held.reason) == (HealthState.FAILED_OVER, who, "maintenance")
    assert held.held_until is not None
    assert held.held_until - held.since == pytest.approx(3600, abs=60)
    assert [(each["primary"], each["diverted"]) for each in diverted.values()] == [(0, 1)] * 3
    assert (back["changed"], back["by"]) == (["Flights"], "ada")
    assert (direct["primary"], direct["diverted"]) == (1, 0)
    [announced] = events("failover")
    assert (announced["entity"], announced["reason"], announced["by"]) == ("flights", "maintenance", who)
    [recovery] = events("recovery")
    assert (recovery["entity"], recovery["reason"], recovery["by"]) == ("Flights", "it is over", "ada")


@pytest.mark.usefixtures("pair")
def test_a_failover_that_cannot_be_stored_fails_the_task(log_of_failure: LogOfFailure, monkeypatch: pytest.MonkeyPatch):
    from servicebus_pair.airflow_runtime.state.health_store import AirflowHealthStore

    monkeypatch.setattr(AirflowHealthStore, "save", AsyncMock(side_effect=ConnectionError("the state store is down")))

    log = log_of_failure(fail_over)

    assert "flights is failed_over in this task, but it could not be written to the state" in log
    assert events("failover") == []
