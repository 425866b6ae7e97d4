"""Stop and pause release all locks of a syphon (SPEC sections 6 and 7)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core.syphon.drain import Syphon
from servicebus_pair.core.syphon.ports import PairTransport
from tests.core.support.drain_progress import ProgressWaiter
from tests.core.support.local_pair import BACKLOG, LocalPair, messages, open_local_pair
from tests.core.support.queues import peek_all

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


async def deliveries(local_pair: LocalPair) -> dict[str, int]:
    """The delivery count of each backlog message."""
    found = await peek_all(local_pair.secondary.connection_string, BACKLOG)
    return {message.message_id or "": message.delivery_count or 0 for message in found}


@pytest.mark.parametrize("end", [stop, cancel])
async def test_section_6_stop_during_a_long_poll_is_quick_and_locks_nothing_more(
    end: Callable[[Syphon, asyncio.Task[Any]], Awaitable[None]],
) -> None:
    async with open_local_pair("flights") as local_pair:
        syphon = local_pair.pair.syphon()
        watch = ProgressWaiter()
        running = asyncio.create_task(syphon.run(progress=watch))
        await local_pair.put_into_backlog("flights", messages(0))
        await watch.until(lambda report: report.moved_total)
        async with asyncio.timeout(BOUND):
            await end(syphon, running)
        await local_pair.put_into_backlog("flights", messages(*range(1, 50)))
        async with asyncio.timeout(10):  # locks last a minute
            assert (await local_pair.pair.syphon().drain()).moved == {"flights": 49}


@pytest.mark.parametrize("end", [stop, cancel])
async def test_section_6_messages_in_transit_to_a_stopped_syphon_are_released_at_once(
    end: Callable[[Syphon, asyncio.Task[Any]], Awaitable[None]],
) -> None:
    async with open_local_pair("flights") as local_pair:
        syphon = local_pair.pair.syphon()
        watch = ProgressWaiter()
        running = asyncio.create_task(syphon.run(progress=watch))
        await local_pair.put_into_backlog("flights", messages(0))
        await watch.until(lambda report: report.moved_total)
        syphon.pause()
        await asyncio.sleep(1)
        await local_pair.put_into_backlog("flights", messages(*range(1, 30), body="x" * 8_000))
        local_pair.secondary.set_fault(Fault(kind=FaultKind.BANDWIDTH, bytes_per_second=200_000))
        syphon.resume()
        await asyncio.sleep(0.5)  # about half has arrived
        async with asyncio.timeout(BOUND):
            await end(syphon, running)
        local_pair.secondary.clear_faults()
        report = syphon.report()
        async with asyncio.timeout(10):  # locks last a minute
            second = await local_pair.pair.syphon().drain()
        held = await local_pair.primary_ids("flights")
        assert set(held) == {f"m{n}" for n in range(30)}
        assert len(held) - 30 <= report.duplicates_possible
        assert report.moved_total + second.moved_total == len(held)


async def test_section_6_messages_released_unseen_keep_their_delivery_count() -> None:
    over = False
    async with open_local_pair("flights") as local_pair:
        shared = local_pair.pair._open()
        source = PairTransport(shared.primary, shared.secondary, max_bytes=2**20).source(
            BACKLOG, should_stop=lambda: over
        )
        waiting = asyncio.create_task(source.receive(max_messages=100, max_wait_time=60, timeout=5))
        await asyncio.sleep(0.5)
        over = True
        await local_pair.put_into_backlog("flights", messages(*range(20)))
        async with asyncio.timeout(BOUND):
            assert await waiting == []
            await source.close()
        assert await deliveries(local_pair) == {f"m{n}": 0 for n in range(20)}
        assert (await local_pair.pair.syphon().drain()).moved == {"flights": 20}


async def test_section_6_stop_is_bounded_while_the_secondary_is_silent() -> None:
    async with open_local_pair("flights") as local_pair:
        await local_pair.put_into_backlog("flights", messages(*range(40)))
        local_pair.primary.set_fault(Fault(kind=FaultKind.SERVER_BUSY, entity="flights", on=(Operation.SEND,)))
        syphon = local_pair.pair.syphon()
        watch = ProgressWaiter()
        running = asyncio.create_task(syphon.run(progress=watch))
        await watch.until(lambda report: report.failures)
        local_pair.secondary.set_fault(Fault(kind=FaultKind.FREEZE))
        async with asyncio.timeout(BOUND):
            await stop(syphon, running)
        assert sorted(await local_pair.primary_ids("flights")) == []


async def test_section_6_stop_is_bounded_while_the_primary_is_silent_and_counts_possible_duplicates() -> None:
    async with open_local_pair("flights", lock="PT5S") as local_pair:
        await local_pair.put_into_backlog("flights", messages(*range(10)))
        silent = Fault(kind=FaultKind.NO_DISPOSITION, entity="flights", on=(Operation.SEND,))
        local_pair.primary.set_fault(silent)
        syphon = local_pair.pair.syphon()
        running = asyncio.create_task(syphon.run())
        async with asyncio.timeout(10):
            while not any(each.strikes for each in local_pair.primary.faults):  # noqa: ASYNC110 - a fault has no event
                await asyncio.sleep(0.01)
        async with asyncio.timeout(BOUND):
            await stop(syphon, running)
        assert syphon.report().duplicates_possible == 10
        local_pair.primary.clear_faults()
        async with asyncio.timeout(20):
            assert (await local_pair.pair.syphon().drain()).moved == {"flights": 10}
        assert set(await local_pair.primary_ids("flights")) == {f"m{n}" for n in range(10)}


async def test_section_6_a_message_that_arrives_during_settlement_is_received_at_once() -> None:
    async with open_local_pair("flights") as local_pair:
        syphon = local_pair.pair.syphon()
        watch = ProgressWaiter()
        running = asyncio.create_task(syphon.run(progress=watch))
        slow = local_pair.secondary.set_fault(Fault(kind=FaultKind.LATE_DISPOSITION, delay=1, on=(Operation.SETTLE,)))
        for n in range(5):
            await local_pair.put_into_backlog("flights", messages(n))
            await asyncio.sleep(0.4)
        async with asyncio.timeout(10):  # a long poll lasts 15 minutes, a lock one minute
            await watch.until(lambda report: report.moved_total == 5)
        await stop(syphon, running)
        assert slow.id
        assert (syphon.report().moved_total, syphon.report().duplicates_possible) == (5, 0)
