"""``PrimaryHealthTrigger``: events and cancellation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from servicebus_pair.operators.receive import ServiceBusReceiveOperator
from servicebus_pair.sensors.message import ServiceBusMessageSensor
from servicebus_pair.sensors.servicebus_pair import ServiceBusPrimaryHealthSensor
from servicebus_pair.triggers.primary_health import PrimaryHealthTrigger
from tests.airflow.conftest import CONN_ID, Pair
from tests.airflow.support.tasks import backlog_sensor, drain


@pytest.mark.usefixtures("pair")
async def test_refused_entities_count_as_answered():
    event = await anext(
        PrimaryHealthTrigger(servicebus_pair_conn_id=CONN_ID, entities=["flights", "unknown"], interval=1).run()
    )

    assert event.payload == {"answered": ["flights"], "refused": {"unknown": "EntityNotFoundError"}, "recovered": {}}


async def test_cancelling_the_trigger_ends_it_promptly(pair: Pair):
    pair.primary.freeze()
    trigger = PrimaryHealthTrigger(servicebus_pair_conn_id=CONN_ID, entities=["flights"], interval=1)
    waiting = asyncio.ensure_future(anext(trigger.run()))
    await asyncio.wait({waiting}, timeout=1)

    waiting.cancel()
    began = time.monotonic()
    await asyncio.wait({waiting}, timeout=20)
    pair.primary.thaw()

    assert waiting.cancelled()
    assert time.monotonic() - began < 6  # closing is bounded too


@pytest.mark.parametrize("event", [None, [], {}, {"carry": 1, "found": "x", "messages": None, "answered": {}}])
@pytest.mark.parametrize(
    "resumed",
    [
        lambda: drain(deferrable=True),
        backlog_sensor,
        lambda: ServiceBusMessageSensor(task_id="t", servicebus_pair_conn_id=CONN_ID, entity="flights"),
        lambda: ServiceBusReceiveOperator(
            task_id="t", servicebus_pair_conn_id=CONN_ID, entity="flights", folder="/nowhere"
        ),
        lambda: ServiceBusPrimaryHealthSensor(task_id="t", servicebus_pair_conn_id=CONN_ID, entities=["flights"]),
    ],
    ids=["syphon", "backlog", "message", "receive", "primary"],
)
def test_an_event_of_another_shape_is_refused_before_anything_is_done(resumed: Callable[[], Any], event: object):
    with pytest.raises(ValueError, match=r"the event of the trigger has no .*: a retry of the task waits again"):
        resumed().resume({}, event)
