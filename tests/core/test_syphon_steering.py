"""A syphon is slowed, paused, resumed, stopped, and waits in long polls (SPEC section 6)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from servicebus_pair.core import PairOptions
from tests.core.hosted import hosted, messages
from tests.core.syphoning import Watch

pytestmark = pytest.mark.simulated


async def test_section_6_the_rate_holds_and_can_be_changed_while_it_runs() -> None:
    async with hosted("flights") as both:
        await both.put_into_backlog("flights", messages(*range(400)))
        syphon = both.pair.syphon(rate=20)
        draining = asyncio.create_task(syphon.drain())
        await asyncio.sleep(2)
        assert 1 <= syphon.report().moved_total <= 20 * 2 + 20
        progress = await syphon.progress()
        assert progress.remaining is not None
        assert 400 - progress.moved <= progress.remaining + 100 <= 500
        assert progress.eta_seconds is not None
        assert progress.eta_seconds > 5
        syphon.rate = None
        assert (await draining).moved == {"flights": 400}


async def test_section_6_it_can_be_paused_resumed_and_stopped() -> None:
    async with hosted("flights") as both:
        await both.put_into_backlog("flights", messages(*range(200)))
        syphon = both.pair.syphon(rate=50)
        watch = Watch()
        running = asyncio.create_task(syphon.run(progress=watch))
        await watch.until(lambda report: report.moved_total)
        syphon.pause()
        await asyncio.sleep(0.5)
        moved = syphon.report().moved_total
        await asyncio.sleep(1)
        assert syphon.report().moved_total == moved < 200
        assert len(await both.ids("flights")) + len(await both.ids_in_backlog()) == 200
        syphon.resume()
        syphon.rate = None
        await watch.until(lambda report: report.moved_total == 200)
        syphon.stop()
        report = await running
        assert (report.moved, report.duplicates_possible) == ({"flights": 200}, 0)


async def test_section_6_a_continuous_syphon_moves_what_arrives_while_it_waits_in_a_long_poll() -> None:
    async with hosted("flights") as both:
        syphon = both.pair.syphon()
        watch = Watch()
        running = asyncio.create_task(syphon.run(progress=watch))
        await asyncio.sleep(1)
        await both.put_into_backlog("flights", messages(1, 2, 3))
        async with asyncio.timeout(10):
            await watch.until(lambda report: report.moved_total == 3)
        syphon.stop()
        await running
        assert await both.ids("flights") == ["m1", "m2", "m3"]
        assert await both.ids_in_backlog() == []


async def test_section_6_without_a_backlog_a_queue_costs_one_receive_for_each_long_poll() -> None:
    options = PairOptions(backlog_queue_count=2, syphon_long_poll=timedelta(seconds=1))
    async with hosted("flights", options=options) as both:
        syphon = both.pair.syphon()
        running = asyncio.create_task(syphon.run())
        await asyncio.sleep(3.5)
        syphon.stop()
        await running
        operations = both.pair.meter.read()
        assert 2 * 2 <= operations.empty_receives <= 2 * 4
        assert operations.receives == 0
