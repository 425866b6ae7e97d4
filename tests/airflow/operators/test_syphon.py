"""``ServiceBusPairSyphonOperator``: bursts, deferrals, filters and continuous drains."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from servicebus_emulator import Fault, FaultKind
from tests.airflow.conftest import Pair, RunDag, run_task
from tests.airflow.support.queues import contents, divert
from tests.airflow.support.tasks import drain as syphon


def test_only_named_entities_are_drained(pair: Pair, run_dag: RunDag):
    asyncio.run(divert(pair, "flights", count=2))
    asyncio.run(divert(pair, "briefings", count=3))

    planned = run_task(run_dag, lambda: syphon(entities="briefings, unused", plan_only="True"))["drain"]
    found = run_task(run_dag, lambda: syphon(entities=["briefings"]))["drain"]

    assert {entity: each["messages"] for entity, each in planned["waiting"].items()} == {"briefings": 3}
    assert found["moved"] == {"briefings": 3}
    assert len(contents(pair.primary["contoso"], "flights")) == 0
    assert run_task(run_dag, syphon)["drain"]["moved"] == {"flights": 2}


def test_bursts_release_the_worker_and_totals_cover_all_of_them(pair: Pair, run_dag: RunDag):
    asyncio.run(divert(pair, count=100))

    found = run_task(run_dag, lambda: syphon(rate=30, burst=timedelta(seconds=2), deferrable=True, poll_interval=1))

    assert found["drain"]["moved"] == {"flights": 100}  # more than one burst can move at this rate
    assert len({each.body for each in contents(pair.primary["contoso"], "flights")}) == 100


async def test_a_very_short_burst_still_makes_progress(pair: Pair):
    await divert(pair, count=100)
    for side, name in ((pair.primary, "contoso"), (pair.secondary, "contoso-dr")):
        side[name].set_fault(Fault(kind=FaultKind.LATENCY, delay=0.12))  # a dozen answers, each way

    drain = syphon(rate=30, burst=timedelta(seconds=1), entities=["flights"], deferrable=True, poll_interval=1)
    with pytest.raises(TaskDeferred) as deferred:
        await drain.aexecute({})

    moved = deferred.value.trigger.carry["moved"]["flights"]
    assert moved >= 10, "of the 30 that its rate allows in a second"
    assert len(contents(pair.primary["contoso"], "flights")) == moved


async def test_a_continuous_drain_resumes_when_the_backlog_fills(pair: Pair):
    from azure.servicebus.aio import ServiceBusClient

    await divert(pair, count=2)  # which provisions
    going = asyncio.ensure_future(syphon(continuous=True, poll_interval=1).aexecute({}))
    try:
        async with (
            ServiceBusClient.from_connection_string(pair.primary["contoso"].connection_string) as client,
            client.get_queue_receiver("flights") as arrived,
        ):
            for again in (True, False):
                for _ in range(2):
                    [message] = await arrived.receive_messages(max_message_count=1, max_wait_time=40)
                    await arrived.complete_message(message)
                if again:
                    await divert(pair, count=2)
    finally:
        going.cancel()
        await asyncio.wait({going})

    assert going.cancelled()
