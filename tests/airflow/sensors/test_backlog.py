"""``ServiceBusBacklogSensor``: results and deferral."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from servicebus_pair.core.protocol.backlog_queues import session_queue_paths
from tests.airflow.conftest import Pair, RunDag, define_connection, run_task
from tests.airflow.support.queues import divert, divert_session
from tests.airflow.support.tasks import backlog_sensor, drain, provision


def test_the_result_is_the_depth_with_ages_on_request(pair: Pair, run_dag: RunDag):
    asyncio.run(divert(pair, count=3))

    found = run_task(
        run_dag,
        lambda: backlog_sensor(task_id="filled", until="filled", messages=3, age=timedelta(hours=1)),
        drain,
        lambda: backlog_sensor(task_id="drained", deferrable=True),
    )

    assert {name: found["filled"][name] for name in ("messages", "queues")} == {"messages": 3, "queues": 1}
    assert 0 <= found["filled"]["oldest_seconds"] < 120
    assert found["drained"] == {"messages": 0, "queues": 0, "oldest_seconds": None, "spooled": 0}


def test_session_queues_count_with_the_others(pair: Pair, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch):
    """SPEC section 6: with session order the backlog is in queues that require sessions as well."""
    pair.settings |= {"ordering": "session"}
    define_connection(monkeypatch, pair.extra())
    run_task(run_dag, provision)
    asyncio.run(divert_session(pair, session_queue_paths("contoso", 2)[0], count=3))

    found = run_task(run_dag, lambda: backlog_sensor(until="filled", messages=3, age=timedelta(hours=1)))["backlog"]

    assert (found["messages"], found["queues"]) == (3, 1)
    assert 0 <= found["oldest_seconds"] < 120
