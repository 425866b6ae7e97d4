"""``ServiceBusPrimaryHealthSensor``: deferral, results and parameters."""

from __future__ import annotations

import asyncio

import pytest

from servicebus_pair.airflow_runtime.airflow_version import AirflowFailException
from servicebus_pair.sensors.servicebus_pair import ServiceBusPrimaryHealthSensor
from tests.airflow.conftest import CONN_ID, Pair, RestartSoon, RunDag, run_task
from tests.airflow.support.queues import divert


def test_the_sensor_defers_until_the_primary_is_back(pair: Pair, run_dag: RunDag, restart_soon: RestartSoon):
    pair.primary.kill()
    restart_soon(pair.primary)

    result = run_task(
        run_dag,
        lambda: ServiceBusPrimaryHealthSensor(
            task_id="wait", servicebus_pair_conn_id=CONN_ID, entities=["flights"], deferrable=True, poke_interval=1
        ),
    )["wait"]

    assert result == {"answered": ["flights"], "refused": {}}


@pytest.mark.usefixtures("pair")
def test_without_entities_to_wait_for_the_sensor_succeeds(run_dag: RunDag):
    result = run_task(
        run_dag, lambda: ServiceBusPrimaryHealthSensor(task_id="wait", servicebus_pair_conn_id=CONN_ID, deferrable=True)
    )["wait"]

    assert result == {"answered": [], "refused": {}}


def test_a_destination_in_the_backlog_that_looks_like_a_secret_does_not_stop_those_who_wait(
    pair: Pair, run_dag: RunDag, restart_soon: RestartSoon
):
    asyncio.run(divert(pair, "SharedAccessKey=1", count=1))
    asyncio.run(divert(pair, "flights", count=1))
    pair.primary.kill()
    restart_soon(pair.primary)

    result = run_task(
        run_dag,
        lambda: ServiceBusPrimaryHealthSensor(
            task_id="wait", servicebus_pair_conn_id=CONN_ID, deferrable=True, poke_interval=1
        ),
    )["wait"]

    assert result == {"answered": ["flights"], "refused": {}}


def test_a_missing_named_entity_fails_the_sensor():
    sensor = ServiceBusPrimaryHealthSensor(task_id="wait", servicebus_pair_conn_id=CONN_ID, entities=["missing"])

    with pytest.raises(AirflowFailException, match=r"EntityRefusedError: .* refuses missing"):
        sensor.resume({}, {"answered": [], "refused": {"missing": "EntityNotFoundError"}, "recovered": {}})
