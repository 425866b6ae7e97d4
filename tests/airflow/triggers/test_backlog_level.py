"""``BacklogLevelTrigger``: waiting and shared readings."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from servicebus_pair.triggers.backlog_level import BacklogLevelTrigger
from tests.airflow.conftest import CONN_ID, Pair
from tests.airflow.support.queues import divert


async def test_the_trigger_waits_for_messages_and_survives_an_outage_of_the_secondary(pair: Pair):
    await divert(pair, count=1)
    pair.secondary.kill()
    trigger = BacklogLevelTrigger(servicebus_pair_conn_id=CONN_ID, until="filled", messages=2, age=None, interval=1)
    waiting = asyncio.ensure_future(anext(trigger.run()))
    await asyncio.wait({waiting}, timeout=1)
    assert not waiting.done()

    pair.secondary.start()
    await divert(pair, count=1)
    event = await asyncio.wait_for(waiting, 60)

    assert event.payload["messages"] == 2


async def test_many_triggers_share_one_reading(pair: Pair, monkeypatch: pytest.MonkeyPatch):
    from servicebus_pair.core.pair.namespace_pair import NamespacePair

    readings: list[int] = []
    first_reading = asyncio.Event()
    listing = NamespacePair.backlog_depths

    async def counting(self: NamespacePair) -> list[Any]:
        readings.append(1)
        found = await listing(self)
        first_reading.set()
        return found

    monkeypatch.setattr(NamespacePair, "backlog_depths", counting)
    await divert(pair, count=1)
    triggers = [
        BacklogLevelTrigger(servicebus_pair_conn_id=CONN_ID, until="drained", messages=0, age=None, interval=60)
        for _ in range(20)
    ]
    waiting = [asyncio.ensure_future(anext(trigger.run())) for trigger in triggers]
    await first_reading.wait()
    await asyncio.wait(waiting, timeout=1)
    for each in waiting:
        each.cancel()
    await asyncio.wait(waiting)

    assert len(readings) == 1
