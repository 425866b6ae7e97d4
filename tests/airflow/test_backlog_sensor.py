"""The backlog sensor and its trigger: waiting for a backlog that is drained, or filled (issue 5)."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.hooks.backlog import BacklogCondition, Depth, Until
from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator
from servicebus_pair.sensors.backlog import ServiceBusBacklogSensor
from servicebus_pair.triggers.backlog_level import BacklogLevelTrigger
from tests.airflow.conftest import CONN_ID, KEY, Pair, RunDag, run_task
from tests.airflow.queues import divert


@pytest.mark.parametrize(
    ("until", "messages", "age", "depth", "expected"),
    [
        ("drained", 0, None, Depth(0, 0), True),
        ("drained", 0, None, Depth(1, 1), False),
        ("drained", 5, None, Depth(1, 5, 9e9), True),  # ages do not matter
        ("drained", 5, 60.0, Depth(1, 5, 61.0), False),  # few, but one of them old
        ("drained", 5, 60.0, Depth(1, 5, 60.0), True),
        ("filled", 0, None, Depth(0, 0), False),  # nothing is never filled
        ("filled", 0, None, Depth(1, 1), True),
        ("filled", 10, None, Depth(1, 9), False),
        ("filled", 10, 60.0, Depth(1, 9, 60.0), True),  # few, but one of them old
    ],
)
def test_a_backlog_is_drained_or_filled_by_count_and_age(
    until: str, messages: int, age: float | None, depth: Depth, expected: bool
):
    assert BacklogCondition(until=Until(until), messages=messages, age=age).holds(depth) is expected


@given(wanted=st.integers(1, 50), held=st.integers(0, 50))
def test_a_backlog_is_filled_exactly_when_it_is_not_drained_to_one_less(wanted: int, held: int):
    filled = BacklogCondition(until=Until.FILLED, messages=wanted)
    drained = BacklogCondition(until=Until.DRAINED, messages=wanted - 1)

    assert filled.holds(Depth(1, held)) is not drained.holds(Depth(1, held))


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
def test_a_wrong_parameter_is_told_when_the_dag_is_parsed(parameters: dict[str, Any], message: str):
    with pytest.raises(ConfigurationError, match=message):
        ServiceBusBacklogSensor(task_id="wait", conn_id=CONN_ID, **parameters)


def test_what_the_backlog_holds_is_seen_with_its_age_and_a_drained_one_too(pair: Pair, run_dag: RunDag):
    asyncio.run(divert(pair, count=3))

    found = run_task(
        run_dag,
        lambda: ServiceBusBacklogSensor(
            task_id="filled", conn_id=CONN_ID, until="filled", messages=3, age=timedelta(hours=1), poke_interval=1
        ),
        lambda: ServiceBusPairSyphonOperator(task_id="drain", conn_id=CONN_ID),
        lambda: ServiceBusBacklogSensor(task_id="drained", conn_id=CONN_ID, deferrable=True, poke_interval=1),
    )

    assert {name: found["filled"][name] for name in ("messages", "queues")} == {"messages": 3, "queues": 1}
    assert 0 <= found["filled"]["oldest_seconds"] < 120
    assert found["drained"] == {"messages": 0, "queues": 0, "oldest_seconds": None}


def test_the_deferred_sensor_wakes_when_the_backlog_fills(pair: Pair, run_dag: RunDag):
    asyncio.run(divert(pair, count=1))
    filling = threading.Timer(2, lambda: asyncio.run(divert(pair, count=1)))
    filling.start()

    result = run_task(
        run_dag,
        lambda: ServiceBusBacklogSensor(
            task_id="wait", conn_id=CONN_ID, until="filled", messages=2, deferrable=True, poke_interval=1
        ),
    )["wait"]
    filling.join()

    assert result["messages"] == 2


@pytest.mark.apart
async def test_the_trigger_waits_until_the_backlog_fills_and_outlives_the_secondary(pair: Pair):
    await divert(pair, count=1)
    pair.secondary.kill()
    trigger = BacklogLevelTrigger(conn_id=CONN_ID, until="filled", messages=2, age=None, interval=1)
    waiting = asyncio.ensure_future(anext(trigger.run()))
    await asyncio.wait({waiting}, timeout=1)
    assert not waiting.done()

    pair.secondary.start()
    await divert(pair, count=1)
    event = await asyncio.wait_for(waiting, 60)

    assert event.payload["messages"] == 2


async def test_many_triggers_share_their_looks(pair: Pair, monkeypatch: pytest.MonkeyPatch):
    from servicebus_pair.core.pair import NamespacePair

    looks: list[int] = []
    looked = asyncio.Event()
    listing = NamespacePair.backlog_depths

    async def counted(self: NamespacePair) -> list[Any]:
        looks.append(1)
        found = await listing(self)
        looked.set()
        return found

    monkeypatch.setattr(NamespacePair, "backlog_depths", counted)
    await divert(pair, count=1)
    triggers = [
        BacklogLevelTrigger(conn_id=CONN_ID, until="drained", messages=0, age=None, interval=60) for _ in range(20)
    ]
    waiting = [asyncio.ensure_future(anext(trigger.run())) for trigger in triggers]
    await looked.wait()
    await asyncio.wait(waiting, timeout=1)
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)

    assert len(looks) == 1


async def test_a_wrong_connection_ends_the_wait_with_an_error_and_without_the_secret(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
):
    pair.settings["failover_interval"] = 10_000
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONN_ID.upper()}", pair.connection())

    trigger = BacklogLevelTrigger(conn_id=CONN_ID, until="filled", messages=1, age=None, interval=1)
    event = await anext(trigger.run())

    assert "failover_interval" in event.payload["error"]
    assert KEY not in event.payload["error"]


def test_the_trigger_is_recreated_from_what_it_serializes():
    path, arguments = BacklogLevelTrigger(conn_id=CONN_ID, until="filled", messages=2, age=60.0, interval=5).serialize()

    assert path == "servicebus_pair.triggers.backlog_level.BacklogLevelTrigger"
    assert BacklogLevelTrigger(**arguments).serialize() == (path, arguments)
