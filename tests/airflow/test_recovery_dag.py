"""The recovery DAG: what starts it, what its form asks, and that it brings everything home (issue 5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from servicebus_pair.core.reconcile import Totals
from tests.airflow.conftest import CONN_ID, Pair, RestartSoon, RunDag, results, states
from tests.airflow.queues import contents, divert

Example: TypeAlias = Callable[[str], Any]
Recover: TypeAlias = Callable[..., Any]
RECOVERY = "servicebus_pair_recovery"
QUEUES = [f"contoso/x-servicebus-transfer/{index}" for index in range(2)]


@pytest.fixture
def recover(run_dag: RunDag, example: Example, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Recover:
    """Run the recovery as its form asks for it, without Spark unless that is asked for."""
    monkeypatch.setenv("SERVICEBUS_PAIR_HOME", str(tmp_path))
    monkeypatch.setenv("SERVICEBUS_PAIR_POLL_SECONDS", "1")
    # dag.test cannot end a run that has a deadline (Airflow 3.3.2): a system test proves that one.
    monkeypatch.setenv("SERVICEBUS_PAIR_RECOVERY_DEADLINE_MINUTES", "0")

    def run(**form: Any) -> Any:
        return run_dag(example(RECOVERY), run_conf={"reconcile": False, **form})

    return run


def test_it_is_started_by_a_failover_by_the_watched_backlog_or_by_the_clock_one_run_at_a_time(example: Example):
    from airflow.sdk import AssetAny, AssetOrTimeSchedule

    from servicebus_pair.triggers.backlog import BacklogTrigger

    recovery = example(RECOVERY)
    schedule = recovery.timetable
    assets = {asset.uri: asset for asset in schedule.asset_condition.objects}

    assert isinstance(schedule, AssetOrTimeSchedule)
    assert isinstance(schedule.asset_condition, AssetAny)
    assert set(assets) == {f"servicebus-pair://{CONN_ID}/failover", f"servicebus-pair://{CONN_ID}/backlog"}
    (watcher,) = assets[f"servicebus-pair://{CONN_ID}/backlog"].watchers
    assert isinstance(watcher.trigger, BacklogTrigger)
    assert schedule.timetable.expression == "0 * * * *"
    assert (recovery.max_active_runs, recovery.catchup) == (1, False)


def test_an_empty_backlog_ends_the_run_early_and_green(pair: Pair, recover: Recover):
    run = recover(reconcile=True)

    assert run.state == "success"
    assert states(run) == {
        "plan": "skipped",
        "wait_for_primary": "success",
        "backlog_queues": "success",
        "drain": "skipped",
        "reconcile": "skipped",
        "report": "skipped",
    }


def test_each_queue_that_holds_messages_is_drained_by_a_task_of_its_own_and_all_is_reported(
    pair: Pair, recover: Recover
):
    for _ in range(4):  # each sender chooses a queue at random
        asyncio.run(divert(pair, count=5))
    asyncio.run(divert(pair, "briefings", count=3))

    run = recover(rate=50)

    found = results(run)
    assert states(run)["reconcile"] == "skipped"
    assert found["report"]["moved"] == {"flights": 20, "briefings": 3}
    assert found["report"]["queues"] == len(found["backlog_queues"])
    assert (found["report"]["dead_lettered"], found["report"]["lost"], found["report"]["report"]) == ({}, None, None)
    assert len(contents(pair.primary["contoso"], "flights")) == 20
    assert len(contents(pair.primary["contoso"], "briefings")) == 3
