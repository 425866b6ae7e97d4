"""``ServiceBusBacklogSensor``: results and deferral."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from tests.airflow.conftest import Pair, RunDag, run_task
from tests.airflow.support.queues import divert
from tests.airflow.support.tasks import backlog_sensor, drain


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
    assert found["drained"] == {"messages": 0, "queues": 0, "oldest_seconds": None}
