"""``ServiceBusPairSyphonOperator``: bursts, deferrals, filters and continuous drains."""

from __future__ import annotations

import asyncio
import re
import threading
from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import DAG, task
from airflow.sdk.exceptions import TaskDeferred

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator
from tests.airflow.conftest import CONN_ID, Pair, RunDag, results, run_task, states
from tests.airflow.support.queues import contents, divert
from tests.airflow.support.tasks import drain as syphon


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"time_to_live": "never"}, r"time_to_live is 'never': allowed are restart, elapse"),
        ({"burst": timedelta(0)}, r"burst is .*: it must be a timedelta or a number of seconds, from 1 to 86400 s"),
        ({"plan_only": "maybe"}, r"plan_only is 'maybe': allowed are true and false"),
        ({"poll_interval": 0}, r"poll_interval is 0: allowed are 1 to 3600 seconds"),
        *(
            ({"rate": rate}, rf"rate is {re.escape(repr(rate))}: it must be a number of messages a second above 0")
            for rate in (0, -1, "-1", "many", float("inf"), float("nan"), True, [5])
        ),
    ],
)
def test_invalid_parameters_are_refused_at_parse_time(parameters: dict[str, Any], message: str):
    with pytest.raises(ConfigurationError, match=message):
        syphon(**parameters)


@pytest.mark.parametrize("rendered", ["many", "-1", "0", "inf", "nan", [5]])
async def test_an_invalid_rendered_rate_is_refused_before_receiving(rendered: Any):
    drain = syphon(rate="{{ params.rate }}")
    drain.rate = rendered  # as rendering does
    with pytest.raises(ConfigurationError, match=r"rate is .*: it must be a number of messages a second above 0"):
        await drain.aexecute({})


def test_only_named_entities_are_drained(pair: Pair, run_dag: RunDag):
    asyncio.run(divert(pair, "flights", count=2))
    asyncio.run(divert(pair, "briefings", count=3))

    planned = run_task(run_dag, lambda: syphon(entities="briefings, nobody", plan_only="True"))["drain"]
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


@pytest.mark.apart
def test_an_outage_during_the_drain_defers_without_a_retry(pair: Pair, run_dag: RunDag):
    asyncio.run(divert(pair, count=80))
    death = threading.Timer(4, pair.primary.kill)
    death.start()
    return_ = threading.Timer(7, pair.primary.start)
    return_.start()

    found = run_task(run_dag, lambda: syphon(rate=15, deferrable=True, poll_interval=1))["drain"]
    for timer in (death, return_):
        timer.join()

    assert found["moved"]["flights"] >= 80
    assert len({each.body for each in contents(pair.primary["contoso"], "flights")}) == 80


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


def test_mapped_tasks_each_drain_their_queue(pair: Pair, run_dag: RunDag):
    for _ in range(4):  # each sender chooses a queue at random
        asyncio.run(divert(pair, count=5))

    with DAG("mapped", schedule=None) as dag:

        @task
        def queues() -> list[list[str]]:
            return [[queue] for queue in ServiceBusPairHook(CONN_ID).backlog_queue_names()]

        ServiceBusPairSyphonOperator.partial(task_id="drain", conn_id=CONN_ID).expand(queues=queues())
    run = run_dag(dag)

    assert set(states(run).values()) == {"success"}
    assert results(run)["queues"] == [["contoso/x-servicebus-transfer/0"], ["contoso/x-servicebus-transfer/1"]]
    assert len(contents(pair.primary["contoso"], "flights")) == 20
