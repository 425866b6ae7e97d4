"""``ServiceBusPairDrillOperator``: a passing drill and findings."""

from __future__ import annotations

import pytest

from servicebus_pair.core.model.health_state import HealthState
from tests.airflow.conftest import LogOfFailure, Pair, RunDag, events, run_task, shared_health
from tests.airflow.support.queues import contents
from tests.airflow.support.tasks import drill, fail_over, provision


def test_a_passing_drill_restores_health_and_emits_events_on_request(pair: Pair, run_dag: RunDag):
    """SPEC sections 4 and 5."""
    run_task(run_dag, provision)

    report = run_task(run_dag, lambda: drill(messages="{{ 3 }}", limit=30))["drill"]
    silent = events("failover")
    run_task(run_dag, lambda: drill(messages=1, announce=True))

    assert (report["passed"], report["sent"], report["arrived"], report["findings"]) == (True, 3, 3, [])
    assert report["operations"]["diverts"] == 3
    assert shared_health("flights").state is HealthState.HEALTHY
    assert silent == []
    assert len(events("failover")) == len(events("recovery")) == 1
    assert len(contents(pair.primary["contoso"], "flights")) == 4


@pytest.mark.usefixtures("pair")
def test_findings_or_a_missing_backlog_fail_the_task(run_dag: RunDag, log_of_failure: LogOfFailure):
    assert "the marked messages were not sent" in log_of_failure(drill)
    assert shared_health("flights").state is HealthState.HEALTHY

    run_task(run_dag, provision)
    run_task(run_dag, fail_over)
    log = log_of_failure(drill)

    assert "flights is failed over already (maintenance): drill when it is healthy" in log
