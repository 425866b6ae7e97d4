"""Drills with ``ordering="session"``: the backlog is empty before an entity fails back (SPEC section 6)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core import NamespacePair
from servicebus_pair.core.protocol.backlog_queues import backlog_queue_paths
from tests.core.health.scenarios.test_session_order import OPTIONS, numbered
from tests.core.support.local_pair import open_local_pair
from tests.core.support.queues import peek_all

pytestmark = pytest.mark.simulated


@pytest.mark.real_time
async def test_a_drill_drains_before_failback_and_keeps_session_order() -> None:
    ended = asyncio.Event()
    sent = 0

    async def live(pair: NamespacePair) -> None:
        nonlocal sent
        async with pair.sender("flights") as sender:
            while not ended.is_set():
                await sender.send(numbered("a", sent), timeout=20)
                sent += 1
                await asyncio.sleep(0.002)

    async with open_local_pair("flights", options=OPTIONS) as both:
        sending_live = asyncio.create_task(live(both.pair))
        await asyncio.sleep(0.1)
        report = await both.pair.drill("flights", messages=100, limit=timedelta(seconds=30))
        before = sent
        await asyncio.sleep(0.3)
        ended.set()
        await sending_live
        assert report.passed, report.findings
        assert report.live > 0
        assert sent > before
        assert not both.pair.health("flights").failed_over
        held = await peek_all(both.primary.connection_string, "flights")
        live_ids = [message.message_id for message in held if message.session_id == "a"]
        assert live_ids == [f"a/{n}" for n in range(sent)]
        for queue in backlog_queue_paths("contoso", 3):
            assert await both.backlog_ids(queue) == []


async def test_a_drill_that_cannot_drain_does_not_fail_back_and_ends_its_hold() -> None:
    async with open_local_pair("flights", options=OPTIONS, lock="PT5S") as both, both.pair.sender("flights") as sender:
        await both.pair.fail_over("flights", reason="an outage")
        await sender.send(numbered("a", 1))
        await both.pair.mark_healthy("flights")
        drilling = asyncio.create_task(both.pair.drill("flights", messages=2, limit=timedelta(seconds=4)))
        await both.pair._registry.wait_for_change("flights", timeout=10)
        both.primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, on=(Operation.SEND,), entity="flights"))
        report = await drilling
        assert any("not empty within" in finding for finding in report.findings)
        assert both.pair.health("flights").failed_over
        both.primary.clear_faults()
        assert (await both.pair.syphon().drain()).moved_total == 3
        async with asyncio.timeout(6):
            while both.pair.health("flights").failed_over:
                await both.pair._registry.wait_for_change("flights", timeout=5)
