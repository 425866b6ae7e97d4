"""``ServiceBusPairProvisionOperator``: dry run, drift."""

from __future__ import annotations

import pytest

from servicebus_pair.core.protocol.backlog_queues import session_queue_paths
from tests.airflow.conftest import BACKLOG, LogOfFailure, Pair, RunDag, define_connection, run_task
from tests.airflow.support.queues import queue_names
from tests.airflow.support.tasks import provision


def test_a_dry_run_logs_the_plan_and_creates_nothing(pair: Pair, run_dag: RunDag, capfd: pytest.CaptureFixture[str]):
    """SPEC section 3: a plan comes from the same function as the action."""
    log = run_task(run_dag, lambda: provision(plan_only="{{ 1 == 1 }}"))["provision"]

    assert log == {"found": 0, "missing": 2, "created": 0, "drifted": 0, "extra": 0, "failed": 0}
    assert queue_names(pair.secondary["contoso-dr"]) == []
    assert f"queue={BACKLOG[1]} is missing: it would be created" in capfd.readouterr().out


def test_drift_warns_or_fails_after_missing_queues_were_created(
    pair: Pair, log_of_failure: LogOfFailure, run_dag: RunDag
):
    """SPEC section 3: an existing queue whose description differs is used as it is and reported."""
    pair.secondary["contoso-dr"].create_queue(BACKLOG[0])

    log = log_of_failure(lambda: provision(on_drift="fail"))
    warned = run_task(run_dag, provision)["provision"]

    assert f"queue={BACKLOG[0]} drifted: max_delivery_count is 10, expected 2147483647" in log
    assert "1 backlog queues differ from the description" in log
    assert warned == {"found": 2, "missing": 0, "created": 0, "drifted": 1, "extra": 0, "failed": 0}


def test_session_queues_are_created_and_one_of_the_wrong_kind_is_failed(
    pair: Pair, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    """SPEC section 6: ordered backlogs are queues that require sessions, which cannot be changed after creation."""
    pair.settings |= {"ordering": "session"}
    define_connection(monkeypatch, pair.extra())
    wrong, other = session_queue_paths("contoso", 2)
    pair.secondary["contoso-dr"].create_queue(wrong)

    planned = run_task(run_dag, lambda: provision(plan_only=True))["provision"]
    done = run_task(run_dag, provision)["provision"]

    assert planned == {"found": 1, "missing": 3, "created": 0, "drifted": 1, "extra": 0, "failed": 1}
    assert done == {"found": 1, "missing": 3, "created": 3, "drifted": 1, "extra": 0, "failed": 1}
    assert sorted(queue_names(pair.secondary["contoso-dr"])) == sorted([*BACKLOG, wrong, other])
    assert f"queue={wrong} cannot be used: RequiresSession is False, must be True" in capfd.readouterr().out
