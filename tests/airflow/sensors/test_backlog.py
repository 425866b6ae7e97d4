"""``ServiceBusBacklogSensor``: parameters, results and deferral."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.sensors.backlog import ServiceBusBacklogSensor
from tests.airflow.conftest import CONN_ID, Pair, RunDag, run_task
from tests.airflow.support.queues import divert
from tests.airflow.support.tasks import drain


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"until": "empty"}, r"until is 'empty': allowed are drained, filled"),
        ({"messages": -1}, r"messages is -1: it must be a whole number of at least 0"),
        ({"messages": "5"}, r"messages is '5'"),
        ({"age": 60}, r"age is 60: it must be a timedelta above 0"),
        ({"age": timedelta(0)}, r"age is .*: it must be a timedelta above 0"),
        ({"poke_interval": 0}, r"poke_interval is 0: allowed are 1 to 3600 seconds"),
    ],
)
def test_invalid_parameters_are_refused_at_parse_time(parameters: dict[str, Any], message: str):
    with pytest.raises(ConfigurationError, match=message):
        ServiceBusBacklogSensor(task_id="wait", conn_id=CONN_ID, **parameters)


def test_the_result_is_the_depth_with_ages_on_request(pair: Pair, run_dag: RunDag):
    asyncio.run(divert(pair, count=3))

    found = run_task(
        run_dag,
        lambda: ServiceBusBacklogSensor(
            task_id="filled", conn_id=CONN_ID, until="filled", messages=3, age=timedelta(hours=1), poke_interval=1
        ),
        drain,
        lambda: ServiceBusBacklogSensor(task_id="drained", conn_id=CONN_ID, deferrable=True, poke_interval=1),
    )

    assert {name: found["filled"][name] for name in ("messages", "queues")} == {"messages": 3, "queues": 1}
    assert 0 <= found["filled"]["oldest_seconds"] < 120
    assert found["drained"] == {"messages": 0, "queues": 0, "oldest_seconds": None}
