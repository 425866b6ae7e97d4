"""Manual failover and failback."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock

import pytest

from servicebus_pair.core.model.health_state import HealthState
from servicebus_pair.operators.failover import ServiceBusPairFailbackOperator
from tests.airflow.conftest import CONN_ID, LogOfFailure, RunDag, events, run_task, shared_health
from tests.airflow.support.tasks import fail_over, provision, send


def fail_back(**parameters: Any) -> ServiceBusPairFailbackOperator:
    return ServiceBusPairFailbackOperator(
        task_id="fail_back",
        servicebus_pair_conn_id=CONN_ID,
        **{"entities": ["Flights"], "reason": "it is over", **parameters},
    )


@pytest.mark.usefixtures("pair")
def test_manual_failover_is_shared_emitted_once_and_ended_by_failback(run_dag: RunDag):
    """SPEC section 4: both are recorded with who and when."""
    run_task(run_dag, provision)

    over = run_task(run_dag, fail_over)["fail_over"]
    again = run_task(run_dag, fail_over)["fail_over"]
    held = shared_health("flights")
    diverted = run_task(run_dag, lambda: send(messages=["x"]))["send"]
    back = run_task(run_dag, lambda: fail_back(by="{{ 'ada' }}"))["fail_back"]
    direct = run_task(run_dag, lambda: send(messages=["x"]))["send"]

    who = "dag_test by tasks"
    assert over == {"changed": ["flights"], "unchanged": [], "by": who, "reason": "maintenance"}
    assert again["unchanged"] == ["flights"]
    assert (held.state, held.by, held.reason) == (HealthState.FAILED_OVER, who, "maintenance")
    assert held.held_until is not None
    assert held.held_until - held.since == pytest.approx(3600, abs=60)
    assert (diverted["primary"], diverted["diverted"]) == (0, 1)
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
