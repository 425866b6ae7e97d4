"""The watcher's trigger: a backlog is announced once, and again after it was drained."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from airflow.sdk import task

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.hooks.backlog import Depth
from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator
from servicebus_pair.triggers.backlog import BacklogTrigger, due
from tests.airflow.conftest import CONN_ID, Pair, RunDag, run_task
from tests.airflow.queues import divert


@pytest.mark.parametrize(
    ("messages", "announced", "expected"),
    [
        (0, 0.0, False),
        (5, 0.0, True),  # armed
        (5, 990.0, False),  # announced a moment ago
        (5, 400.0, True),  # announced long ago, and nobody drained
        (0, 400.0, False),
    ],
)
def test_a_backlog_is_due_when_it_holds_messages_that_were_not_announced_lately(
    messages: int, announced: float, expected: bool
):
    assert due(Depth(1, messages), announced=announced, now=1000.0, repeat=600.0) is expected


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"interval": 0}, r"interval is 0: allowed are 1 to 3600 seconds"),
        ({"interval": "10"}, r"interval is '10': allowed are 1 to 3600 seconds"),
        ({"repeat": 5}, r"repeat is 5: allowed are seconds, at least interval, 10"),
        ({"repeat": math.nan}, r"repeat is nan"),
    ],
)
def test_a_wrong_watcher_is_refused_when_its_dag_is_parsed(wrong: dict[str, Any], named: str):
    with pytest.raises(ConfigurationError, match=named):
        BacklogTrigger(conn_id=CONN_ID, **wrong)


@pytest.mark.apart
async def test_the_trigger_fires_once_per_backlog_and_survives_the_secondary(pair: Pair):
    await divert(pair)
    pair.secondary.kill()
    events = BacklogTrigger(conn_id=CONN_ID, interval=1).run()
    first = asyncio.ensure_future(anext(events))
    done, _ = await asyncio.wait({first}, timeout=1)
    assert not done  # it cannot see the backlog, and goes on

    pair.secondary.start()
    event = await asyncio.wait_for(first, 60)
    second = asyncio.ensure_future(anext(events))
    done, _ = await asyncio.wait({second}, timeout=3)
    second.cancel()
    await asyncio.wait({second})

    assert event.payload == {"messages": 3, "queues": 1, "entities": ["flights"]}
    assert not done


@pytest.mark.slow
def test_a_backlog_stays_announced_over_a_restart_and_is_announced_anew_after_a_drain(pair: Pair, run_dag: RunDag):
    """Messages that arrive behind a drain must not wait for an empty backlog that nobody saw."""

    @task
    async def look() -> int | None:
        """What a new triggerer finds: the messages announced, or nothing within three seconds."""
        # One look, then a pause in which it is cancelled: dag.test's communication takes one thread at a time.
        events = BacklogTrigger(conn_id=CONN_ID, interval=60).run()
        try:
            event = await asyncio.wait_for(anext(events), 3)
        except TimeoutError:
            return None
        following = asyncio.ensure_future(anext(events))  # what fired is noted when the next is asked for
        await asyncio.wait({following}, timeout=2)
        following.cancel()
        return event.payload["messages"]

    def drain() -> ServiceBusPairSyphonOperator:
        return ServiceBusPairSyphonOperator(task_id="drain", conn_id=CONN_ID)

    asyncio.run(divert(pair))
    before = run_task(run_dag, look, look, drain)
    asyncio.run(divert(pair))
    after = run_task(run_dag, look)

    assert (before["look"], "look__1" in before) == (3, False)
    assert after["look"] == 3


def test_the_trigger_is_recreated_from_what_it_serializes():
    """Airflow knows a watcher by these: they must not change from parse to parse."""
    path, arguments = BacklogTrigger(conn_id=CONN_ID, interval=3.0).serialize()

    assert path == "servicebus_pair.triggers.backlog.BacklogTrigger"
    assert BacklogTrigger(**arguments).serialize() == (path, arguments)
