"""``BacklogTrigger``: one event per backlog, and again after a drain."""

from __future__ import annotations

import asyncio

import pytest
from airflow.sdk import task

from servicebus_pair.airflow_runtime.waiting.backlog import BacklogDepth
from servicebus_pair.triggers.backlog import BacklogTrigger, is_due
from tests.airflow.conftest import CONN_ID, Pair, RunDag, run_task
from tests.airflow.support.queues import divert
from tests.airflow.support.tasks import drain


@pytest.mark.parametrize(
    ("messages", "last_event", "expected"),
    [
        (0, 0.0, False),
        (5, 0.0, True),  # armed
        (5, 990.0, False),  # the last event was recent
        (5, 400.0, True),  # the last event was long ago and nothing was drained
        (0, 400.0, False),
    ],
)
def test_a_non_empty_backlog_without_recent_event_is_due(messages: int, last_event: float, expected: bool):
    assert is_due(BacklogDepth(1, messages), last_event=last_event, now=1000.0, repeat=600.0) is expected


async def test_the_trigger_fires_once_and_survives_an_outage_of_the_secondary(pair: Pair):
    await divert(pair)
    pair.secondary.kill()
    events = BacklogTrigger(servicebus_pair_conn_id=CONN_ID, interval=1).run()
    first = asyncio.ensure_future(anext(events))
    done, _ = await asyncio.wait({first}, timeout=1)
    assert not done  # it cannot see the backlog, and goes on

    pair.secondary.start()
    event = await asyncio.wait_for(first, 60)
    second = asyncio.ensure_future(anext(events))
    done, _ = await asyncio.wait({second}, timeout=3)
    second.cancel()
    await asyncio.wait({second})

    assert event.payload == {"messages": 3, "queues": 1, "spooled": 0, "entities": ["flights"]}
    assert not done


@pytest.mark.slow
def test_events_are_repeated_after_a_restart_only_if_they_were_not_stored_and_after_a_drain(
    pair: Pair, run_dag: RunDag
):
    """Messages that arrive behind a drain must not wait for a reading of an empty backlog."""

    @task
    async def lost_event() -> int:
        """Return the number of messages in an event of a triggerer that dies before the event is stored."""
        events = BacklogTrigger(servicebus_pair_conn_id=CONN_ID, interval=60).run()
        event = await asyncio.wait_for(anext(events), 3)
        await events.aclose()  # type: ignore[attr-defined]
        messages: int = event.payload["messages"]
        return messages

    @task
    async def new_event() -> int | None:
        """Return the number of messages in the event of a new triggerer, or nothing after three seconds."""
        # One reading, then a pause in which it is cancelled: dag.test's communication takes one thread at a time.
        events = BacklogTrigger(servicebus_pair_conn_id=CONN_ID, interval=60).run()
        try:
            event = await asyncio.wait_for(anext(events), 3)
        except TimeoutError:
            return None
        following = asyncio.ensure_future(anext(events))  # the event is stored when the next one is requested
        await asyncio.wait({following}, timeout=2)
        following.cancel()
        messages: int = event.payload["messages"]
        return messages

    asyncio.run(divert(pair))
    before = run_task(run_dag, lost_event, new_event, new_event, drain)
    asyncio.run(divert(pair))
    after = run_task(run_dag, new_event)

    assert (before["lost_event"], before["new_event"], "new_event__1" in before) == (3, 3, False)
    assert after["new_event"] == 3
