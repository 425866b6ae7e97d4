"""What a syphon moves from two embedded namespaces, and when it is done (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core import DrainReport, PairOptions
from servicebus_pair.core.backlog import backlog_queues
from servicebus_pair.core.parcels import TimeToLive
from tests.core.hosted import BACKLOG, hosted, messages
from tests.core.peeking import peek_all

pytestmark = pytest.mark.simulated


async def test_section_6_only_the_entities_asked_for_are_moved_and_the_others_stay() -> None:
    async with hosted("flights", "delays") as both:
        await both.put_into_backlog("delays", messages(*range(150), name="d"))
        await both.put_into_backlog("flights", messages(*range(20)))
        report = await both.pair.syphon(entities=["FLIGHTS"]).drain()
        assert report.moved == {"flights": 20}
        assert (report.left, report.empty) == (0, True)  # nothing of what was asked for
        assert len(await both.ids_in_backlog()) == 150
        assert set((await both.pair.syphon(entities=["flights"]).survey()).destinations) == set()
        async with asyncio.timeout(30):
            assert (await both.pair.syphon().drain()).moved == {"delays": 150}


async def test_section_6_a_time_to_live_starts_again_or_elapses_as_asked() -> None:
    life = timedelta(hours=1)
    async with hosted("flights") as both:
        await both.put_into_backlog("flights", messages(1, 2, time_to_live=life))
        await both.put_into_backlog("flights", messages(3, time_to_live=timedelta(milliseconds=200)))
        await asyncio.sleep(0.5)
        report = await both.pair.syphon(time_to_live=TimeToLive.ELAPSE).drain()
        assert (report.moved, report.dead_lettered) == ({"flights": 2}, {"Expired": 1})
        await both.put_into_backlog("flights", messages(4, time_to_live=life))
        assert (await both.pair.syphon().drain()).moved == {"flights": 1}
        *elapsed, again = await peek_all(both.primary.connection_string, "flights")
        for message in elapsed:
            assert message.time_to_live is not None
            assert life - timedelta(seconds=30) < message.time_to_live < life
        assert again.time_to_live == life
        [expired] = await peek_all(both.secondary.connection_string, BACKLOG, dead_letter=True)
        assert (expired.message_id, expired.dead_letter_reason) == ("m3", "Expired")


async def test_section_6_what_was_scheduled_for_a_time_that_is_over_is_sent_at_once() -> None:
    async with hosted("flights") as both:
        soon = datetime.now(UTC) + timedelta(seconds=0.3)
        await both.put_into_backlog("flights", messages(1, scheduled_enqueue_time_utc=soon))
        await asyncio.sleep(0.5)
        assert (await both.pair.syphon().drain()).moved == {"flights": 1}
        [message] = await peek_all(both.primary.connection_string, "flights")
        assert message.scheduled_enqueue_time_utc is None
        assert both.primary.namespace.counts("flights").active == 1


async def test_section_6_several_syphons_at_once_share_the_work_and_double_nothing() -> None:
    options = PairOptions(backlog_queue_count=2)
    async with hosted("flights", options=options) as both:
        for n, queue in enumerate(backlog_queues("contoso", 2)):
            await both.put_into_backlog("flights", messages(*range(n * 500, n * 500 + 500)), queue=queue)
        reports = await asyncio.gather(*(both.pair.syphon().drain() for _ in range(3)))
        assert sum(report.moved_total for report in reports) == 1000
        assert all(report.empty for report in reports)
        assert Counter(await both.ids("flights")) == Counter(f"m{n}" for n in range(1000))


async def test_section_6_a_lost_lock_is_counted_as_a_possible_duplicate() -> None:
    async with hosted("flights", lock="PT5S") as both:
        await both.put_into_backlog("flights", messages(*range(5)))
        both.secondary.set_fault(Fault(kind=FaultKind.LOCK_LOST, on=(Operation.SETTLE,), count=1))
        report = await both.pair.syphon().drain()
        assert report.empty
        copies = Counter(await both.ids("flights"))
        extra = sum(copies.values()) - 5
        assert set(copies) == {f"m{n}" for n in range(5)}
        assert 1 <= extra <= report.duplicates_possible


async def test_section_6_the_end_is_found_by_looking_so_what_arrives_during_a_drain_is_moved_too() -> None:
    async with hosted("flights") as both:
        await both.put_into_backlog("flights", messages(*range(100)))
        arrived: list[asyncio.Task[None]] = []

        def arrive(report: DrainReport) -> None:
            if report.moved_total and not arrived:
                arrived.append(asyncio.create_task(both.put_into_backlog("flights", messages(*range(100, 150)))))

        report = await both.pair.syphon(rate=60).drain(progress=arrive)
        await arrived[0]
        assert (report.moved, report.empty) == ({"flights": 150}, True)
