"""The sensor and its trigger: waiting for the primary, off the worker."""

from __future__ import annotations

import asyncio
import time

import pytest

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.hooks.waiting import check_interval, check_names
from servicebus_pair.sensors.servicebus_pair import EntityRefusedError, ServiceBusPrimaryHealthSensor
from servicebus_pair.triggers.primary_health import PrimaryHealthTrigger, check_event
from tests.airflow.conftest import CONN_ID, KEY, Pair, RestartSoon, RunDag, run_task


@pytest.mark.apart
def test_the_sensor_defers_while_the_primary_is_down_and_succeeds_when_it_is_back(
    pair: Pair, run_dag: RunDag, restart_soon: RestartSoon
):
    pair.primary.kill()
    restart_soon(pair.primary)

    result = run_task(
        run_dag,
        lambda: ServiceBusPrimaryHealthSensor(
            task_id="wait", conn_id=CONN_ID, entities=["flights"], deferrable=True, poke_interval=1
        ),
    )["wait"]

    assert result == {"answered": ["flights"], "refused": {}}


@pytest.mark.usefixtures("pair")
def test_with_nothing_in_question_the_sensor_succeeds_at_once(run_dag: RunDag):
    result = run_task(run_dag, lambda: ServiceBusPrimaryHealthSensor(task_id="wait", conn_id=CONN_ID, deferrable=True))[
        "wait"
    ]

    assert result == {"answered": [], "refused": {}}


@pytest.mark.usefixtures("pair")
async def test_the_trigger_fires_no_earlier_than_after_three_seconds_and_says_what_was_refused():
    """A task that resumes too early is failed by the scheduler; an entity that is not there is an answer too."""
    trigger = PrimaryHealthTrigger(conn_id=CONN_ID, entities=["flights", "nobody"], interval=1)

    began = time.monotonic()
    event = await anext(trigger.run())

    assert time.monotonic() - began >= 3
    assert event.payload == {
        "answered": ["flights"],
        "refused": {"nobody": "EntityNotFoundError"},
        "recovered": {},
    }


@pytest.mark.apart
async def test_a_cancelled_trigger_ends_at_once(pair: Pair):
    pair.primary.freeze()
    trigger = PrimaryHealthTrigger(conn_id=CONN_ID, entities=["flights"], interval=1)
    waiting = asyncio.ensure_future(anext(trigger.run()))
    await asyncio.wait({waiting}, timeout=1)

    waiting.cancel()
    began = time.monotonic()
    await asyncio.wait({waiting}, timeout=20)
    pair.primary.thaw()

    assert waiting.cancelled()
    assert time.monotonic() - began < 6  # closing is bounded too


async def test_a_wrong_connection_ends_the_wait_with_an_error_and_without_the_secret(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    pair.settings["failover_interval"] = 10_000
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONN_ID.upper()}", pair.connection())

    event = await anext(PrimaryHealthTrigger(conn_id=CONN_ID, entities=["flights"], interval=1).run())

    with pytest.raises(
        ConfigurationError, match=r"connection contoso_pair: failover_interval is .*: allowed is"
    ) as told:
        check_event(event.payload)
    assert KEY not in str(told.value)


def test_a_named_entity_that_does_not_exist_fails_the_sensor():
    sensor = ServiceBusPrimaryHealthSensor(task_id="wait", conn_id=CONN_ID, entities=["nobody"])

    with pytest.raises(EntityRefusedError, match="refuses nobody"):
        sensor.resume({}, {"answered": [], "refused": {"nobody": "EntityNotFoundError"}, "recovered": {}})


def test_the_trigger_is_recreated_from_what_it_serializes_and_that_holds_no_secret():
    path, arguments = PrimaryHealthTrigger(conn_id=CONN_ID, entities=["flights"], interval=5).serialize()

    assert path == "servicebus_pair.triggers.primary_health.PrimaryHealthTrigger"
    assert arguments == {"conn_id": CONN_ID, "entities": ["flights"], "interval": 5, "carry": None}
    assert PrimaryHealthTrigger(**arguments).serialize() == (path, arguments)


@pytest.mark.parametrize("seconds", [0, 0.5, 3601])
def test_a_pause_out_of_range_is_refused(seconds: float):
    with pytest.raises(ConfigurationError, match="allowed are 1 to 3600 seconds"):
        check_interval("poke_interval", seconds)


@pytest.mark.parametrize("value", ["flights", [""], [1], None])
def test_a_template_that_rendered_to_anything_but_a_list_of_paths_is_refused(value: object):
    with pytest.raises(ConfigurationError, match=r"entities is .*: it must be a list of paths"):
        check_names("entities", value)
