"""Stopping, pausing and waiting: a syphon keeps no lock that it does not use (SPEC sections 6 and 7)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core.syphon import Syphon
from servicebus_pair.core.transport import PairTransport
from tests.core.hosted import BACKLOG, Hosted, hosted, messages
from tests.core.peeking import peek_all
from tests.core.syphoning import Watch

pytestmark = pytest.mark.simulated

BOUND = 7.0


async def stop(syphon: Syphon, running: asyncio.Task[Any]) -> None:
    syphon.stop()
    await running


async def cancel(syphon: Syphon, running: asyncio.Task[Any]) -> None:
    del syphon
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def deliveries(both: Hosted) -> dict[str, int]:
    """How often each message of the backlog was handed out."""
    found = await peek_all(both.secondary.connection_string, BACKLOG)
    return {message.message_id or "": message.delivery_count or 0 for message in found}


@pytest.mark.parametrize("end", [stop, cancel])
async def test_section_6_a_stop_in_a_long_poll_is_quick_and_what_arrives_from_then_on_is_free_at_once(
    end: Callable[[Syphon, asyncio.Task[Any]], Awaitable[None]],
) -> None:
    async with hosted("flights") as both:
        syphon = both.pair.syphon()
        watch = Watch()
        running = asyncio.create_task(syphon.run(progress=watch))
        await both.put_into_backlog("flights", messages(0))
        await watch.until(lambda report: report.moved_total)
        async with asyncio.timeout(BOUND):
            await end(syphon, running)
        await both.put_into_backlog("flights", messages(*range(1, 50)))
        async with asyncio.timeout(10):  # of locks of a minute
            assert (await both.pair.syphon().drain()).moved == {"flights": 49}


@pytest.mark.parametrize("end", [stop, cancel])
async def test_section_6_what_is_on_its_way_to_a_stopped_syphon_is_free_at_once_and_nothing_is_doubled(
    end: Callable[[Syphon, asyncio.Task[Any]], Awaitable[None]],
) -> None:
    async with hosted("flights") as both:
        syphon = both.pair.syphon()
        watch = Watch()
        running = asyncio.create_task(syphon.run(progress=watch))
        await both.put_into_backlog("flights", messages(0))
        await watch.until(lambda report: report.moved_total)
        syphon.pause()
        await asyncio.sleep(1)
        await both.put_into_backlog("flights", messages(*range(1, 30), body="x" * 8_000))
        both.secondary.set_fault(Fault(kind=FaultKind.BANDWIDTH, bytes_per_second=200_000))
        syphon.resume()
        await asyncio.sleep(0.5)  # about half of it has come
        async with asyncio.timeout(BOUND):
            await end(syphon, running)
        both.secondary.clear_faults()
        report = syphon.report()
        async with asyncio.timeout(10):  # of locks of a minute
            rest = await both.pair.syphon().drain()
        held = await both.ids("flights")
        assert set(held) == {f"m{n}" for n in range(30)}
        assert len(held) - 30 <= report.duplicates_possible
        assert report.moved_total + rest.moved_total == len(held)


async def test_section_6_what_nobody_looked_at_is_given_back_without_a_delivery_counted() -> None:
    over = False
    async with hosted("flights") as both:
        shared = both.pair._open()
        source = PairTransport(shared.primary, shared.secondary).source(BACKLOG, over=lambda: over)
        waiting = asyncio.create_task(source.receive(most=100, wait=60, timeout=5))
        await asyncio.sleep(0.5)
        over = True
        await both.put_into_backlog("flights", messages(*range(20)))
        async with asyncio.timeout(BOUND):
            assert await waiting == []
            await source.close()
        assert await deliveries(both) == {f"m{n}": 0 for n in range(20)}
        assert (await both.pair.syphon().drain()).moved == {"flights": 20}


async def test_section_6_a_stop_while_the_secondary_is_silent_is_bounded_too() -> None:
    async with hosted("flights") as both:
        await both.put_into_backlog("flights", messages(*range(40)))
        both.primary.set_fault(Fault(kind=FaultKind.SERVER_BUSY, entity="flights", on=(Operation.SEND,)))
        syphon = both.pair.syphon()
        watch = Watch()
        running = asyncio.create_task(syphon.run(progress=watch))
        await watch.until(lambda report: report.failures)
        both.secondary.set_fault(Fault(kind=FaultKind.FREEZE))
        async with asyncio.timeout(BOUND):
            await stop(syphon, running)
        assert sorted(await both.ids("flights")) == []


async def test_section_6_a_stop_while_the_primary_is_silent_is_bounded_and_counts_what_it_may_have_stored() -> None:
    async with hosted("flights", lock="PT5S") as both:
        await both.put_into_backlog("flights", messages(*range(10)))
        silent = Fault(kind=FaultKind.NO_DISPOSITION, entity="flights", on=(Operation.SEND,))
        both.primary.set_fault(silent)
        syphon = both.pair.syphon()
        running = asyncio.create_task(syphon.run())
        async with asyncio.timeout(10):
            while not any(each.strikes for each in both.primary.faults):  # noqa: ASYNC110 - a fault tells nobody
                await asyncio.sleep(0.01)
        async with asyncio.timeout(BOUND):
            await stop(syphon, running)
        assert syphon.report().duplicates_possible == 10
        both.primary.clear_faults()
        async with asyncio.timeout(20):
            assert (await both.pair.syphon().drain()).moved == {"flights": 10}
        assert set(await both.ids("flights")) == {f"m{n}" for n in range(10)}


async def test_section_6_a_pause_longer_than_a_lock_holds_no_lock_and_takes_nothing() -> None:
    async with hosted("flights", lock="PT5S") as both:
        syphon = both.pair.syphon()
        watch = Watch()
        running = asyncio.create_task(syphon.run(progress=watch))
        await both.put_into_backlog("flights", messages(0))
        await watch.until(lambda report: report.moved_total)
        syphon.pause()
        await asyncio.sleep(1)  # its long poll ends
        await both.put_into_backlog("flights", messages(*range(1, 30)))
        await asyncio.sleep(6)
        assert await deliveries(both) == {f"m{n}": 0 for n in range(1, 30)}
        assert both.secondary.namespace.counts(BACKLOG).active == 29
        async with asyncio.timeout(5):
            syphon.resume()
            await watch.until(lambda report: report.moved_total == 30)
        await stop(syphon, running)
        assert syphon.report().duplicates_possible == 0


async def test_section_6_a_pause_taken_back_at_once_changes_nothing() -> None:
    async with hosted("flights") as both:
        syphon = both.pair.syphon()
        watch = Watch()
        running = asyncio.create_task(syphon.run(progress=watch))
        await asyncio.sleep(0.5)
        for _ in range(3):
            syphon.pause()
            await asyncio.sleep(0.1)
            syphon.resume()
        await both.put_into_backlog("flights", messages(*range(5)))
        async with asyncio.timeout(5):
            await watch.until(lambda report: report.moved_total == 5)
        await stop(syphon, running)
        assert both.pair.meter.read().empty_receives <= 6


async def test_section_6_what_comes_while_a_hand_is_settled_does_not_wait_for_the_end_of_the_next_long_poll() -> None:
    async with hosted("flights") as both:
        syphon = both.pair.syphon()
        watch = Watch()
        running = asyncio.create_task(syphon.run(progress=watch))
        slow = both.secondary.set_fault(Fault(kind=FaultKind.LATE_DISPOSITION, delay=1, on=(Operation.SETTLE,)))
        for n in range(5):
            await both.put_into_backlog("flights", messages(n))
            await asyncio.sleep(0.4)
        async with asyncio.timeout(10):  # of a long poll of 15 minutes, and of locks of one
            await watch.until(lambda report: report.moved_total == 5)
        await stop(syphon, running)
        assert slow.id
        assert (syphon.report().moved_total, syphon.report().duplicates_possible) == (5, 0)


async def test_section_6_what_a_destination_did_not_take_has_its_permission_and_waits_for_no_other() -> None:
    async with hosted("flights") as both:
        both.primary.set_fault(Fault(kind=FaultKind.SERVER_BUSY, entity="flights", on=(Operation.SEND,), count=1))
        await both.put_into_backlog("flights", messages(1, 2))
        syphon = both.pair.syphon(rate=0.05)
        syphon._shop.throttle._allowance = 1.0
        watch = Watch()
        running = asyncio.create_task(syphon.run(progress=watch))
        async with asyncio.timeout(10):  # the next permission is 20 s away
            await watch.until(lambda report: report.moved_total == 1)
        await stop(syphon, running)
        assert len(await both.ids("flights")) == 1


async def test_section_6_a_queue_that_waits_does_not_save_up_a_burst_beyond_the_rate() -> None:
    async with hosted("flights") as both:
        syphon = both.pair.syphon(rate=5)
        running = asyncio.create_task(syphon.run())
        await asyncio.sleep(3)
        await both.put_into_backlog("flights", messages(*range(40)))
        await asyncio.sleep(1)
        assert syphon.report().moved_total <= 1 + 5 + 5
        await stop(syphon, running)
