"""What a drain moves, and when it ends (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from servicebus_pair.core import DrainReport, PairOptions
from servicebus_pair.core.protocol.backlog_queues import backlog_queue_paths
from servicebus_pair.core.syphon.backlog_entry import TimeToLive
from tests.core.support.drain_progress import ProgressWaiter
from tests.core.support.local_pair import BACKLOG, messages, open_local_pair
from tests.core.support.queues import peek_all

pytestmark = pytest.mark.simulated


async def test_section_6_only_selected_entities_are_moved() -> None:
    async with open_local_pair("flights", "delays") as local_pair:
        await local_pair.put_into_backlog("delays", messages(*range(150), name="d"))
        await local_pair.put_into_backlog("flights", messages(*range(20)))
        report = await local_pair.pair.syphon(entities=["FLIGHTS"]).drain()
        assert report.moved == {"flights": 20}
        assert (report.left, report.empty) == (0, True)  # no selected message is left
        assert len(await local_pair.backlog_ids()) == 150
        assert set((await local_pair.pair.syphon(entities=["flights"]).survey()).destinations) == set()
        async with asyncio.timeout(30):
            assert (await local_pair.pair.syphon().drain()).moved == {"delays": 150}


async def test_section_6_time_to_live_restarts_or_elapses_by_policy() -> None:
    life = timedelta(hours=1)
    async with open_local_pair("flights") as local_pair:
        await local_pair.put_into_backlog("flights", messages(1, 2, time_to_live=life))
        await local_pair.put_into_backlog("flights", messages(3, time_to_live=timedelta(milliseconds=200)))
        await asyncio.sleep(0.5)
        report = await local_pair.pair.syphon(time_to_live=TimeToLive.ELAPSE).drain()
        assert (report.moved, report.dead_lettered) == ({"flights": 2}, {"Expired": 1})
        await local_pair.put_into_backlog("flights", messages(4, time_to_live=life))
        assert (await local_pair.pair.syphon().drain()).moved == {"flights": 1}
        *elapsed, again = await peek_all(local_pair.primary.connection_string, "flights")
        for message in elapsed:
            assert message.time_to_live is not None
            assert life - timedelta(seconds=30) < message.time_to_live < life
        assert again.time_to_live == life
        [expired] = await peek_all(local_pair.secondary.connection_string, BACKLOG, dead_letter=True)
        assert (expired.message_id, expired.dead_letter_reason) == ("m3", "Expired")


async def test_section_6_a_message_with_a_past_schedule_is_sent_at_once() -> None:
    async with open_local_pair("flights") as local_pair:
        soon = datetime.now(UTC) + timedelta(seconds=0.3)
        await local_pair.put_into_backlog("flights", messages(1, scheduled_enqueue_time_utc=soon))
        await asyncio.sleep(0.5)
        assert (await local_pair.pair.syphon().drain()).moved == {"flights": 1}
        [message] = await peek_all(local_pair.primary.connection_string, "flights")
        assert message.scheduled_enqueue_time_utc is None
        assert local_pair.primary.namespace.counts("flights").active == 1


async def test_section_6_concurrent_syphons_share_the_work_without_duplicates() -> None:
    options = PairOptions(backlog_queue_count=2)
    async with open_local_pair("flights", options=options) as local_pair:
        for n, queue in enumerate(backlog_queue_paths("contoso", 2)):
            await local_pair.put_into_backlog("flights", messages(*range(n * 500, n * 500 + 500)), queue=queue)
        reports = await asyncio.gather(*(local_pair.pair.syphon().drain() for _ in range(3)))
        assert sum(report.moved_total for report in reports) == 1000
        assert all(report.empty for report in reports)
        assert Counter(await local_pair.primary_ids("flights")) == Counter(f"m{n}" for n in range(1000))


async def test_section_6_messages_that_arrive_during_a_drain_are_moved() -> None:
    async with open_local_pair("flights") as local_pair:
        await local_pair.put_into_backlog("flights", messages(*range(100)))
        arrived: list[asyncio.Task[None]] = []

        def arrive(report: DrainReport) -> None:
            if report.moved_total and not arrived:
                arrived.append(asyncio.create_task(local_pair.put_into_backlog("flights", messages(*range(100, 150)))))

        report = await local_pair.pair.syphon(rate=60).drain(progress=arrive)
        await arrived[0]
        assert (report.moved, report.empty) == ({"flights": 150}, True)


async def test_section_6_the_rate_is_kept_and_can_be_changed() -> None:
    async with open_local_pair("flights") as local_pair:
        await local_pair.put_into_backlog("flights", messages(*range(400)))
        syphon = local_pair.pair.syphon(rate=20)
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


async def test_section_6_a_syphon_can_be_paused_resumed_and_stopped() -> None:
    async with open_local_pair("flights") as local_pair:
        await local_pair.put_into_backlog("flights", messages(*range(200)))
        syphon = local_pair.pair.syphon(rate=50)
        watch = ProgressWaiter()
        running = asyncio.create_task(syphon.run(progress=watch))
        await watch.until(lambda report: report.moved_total)
        syphon.pause()
        await asyncio.sleep(0.5)
        moved = syphon.report().moved_total
        await asyncio.sleep(1)
        assert syphon.report().moved_total == moved < 200
        assert len(await local_pair.primary_ids("flights")) + len(await local_pair.backlog_ids()) == 200
        syphon.resume()
        syphon.rate = None
        await watch.until(lambda report: report.moved_total == 200)
        syphon.stop()
        report = await running
        assert (report.moved, report.duplicates_possible) == ({"flights": 200}, 0)
