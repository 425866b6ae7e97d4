"""One pair, many senders and processes: who pings, who listens, and how soon all are back (SPEC sections 4 and 5)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from random import Random

import pytest

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_emulator.engine.descriptions import QueueDescription
from servicebus_pair.core import EntityHealth, NamespacePair, State
from servicebus_pair.core.events import HealthChanged, Pinged
from servicebus_pair.core.ports import InMemoryHealthStore, SystemClock
from tests.core.breakable import Breakable, Recorder, breakable_pair, endpoint, numbered

pytestmark = pytest.mark.simulated

DOWN = Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights")
# Refused at once, so that a ping takes no time.
FULL = Fault(kind=FaultKind.QUOTA_EXCEEDED, entity="flights")


def another(breakable: Breakable, recorder: Recorder, store: InMemoryHealthStore, seed: int = 1) -> NamespacePair:
    """A pair as another process would have it: nothing is shared but the store."""
    ends = endpoint(breakable.primary), endpoint(breakable.secondary)
    return NamespacePair(*ends, breakable.pair.options, store=store, observers=[recorder], random_source=Random(seed))  # noqa: S311 - no secret


async def seconds_until(event: asyncio.Event) -> float:
    began = asyncio.get_running_loop().time()
    await asyncio.wait_for(event.wait(), 10)
    return asyncio.get_running_loop().time() - began


async def test_section_5_one_task_pings_an_entity_however_many_senders_wait_for_it(breakable: Breakable) -> None:
    breakable.primary.set_fault(FULL)
    breakable.pair.fail_over("flights", reason="test")
    senders = [breakable.pair.sender("flights"), breakable.pair.sender("FLIGHTS"), breakable.pair.sender("flights")]
    results = await asyncio.gather(*(sender.send(numbered(1)) for sender in senders))
    assert [result.diverted for result in results] == [1, 1, 1]
    before = len(breakable.recorder.of(Pinged))
    await asyncio.sleep(3.5)
    assert len(breakable.recorder.of(Pinged)) - before in (3, 4)


async def test_section_5_ping_stops_once_the_entity_is_healthy_and_all_senders_use_the_primary(
    breakable: Breakable,
) -> None:
    one, two = breakable.pair.sender("flights"), breakable.pair.sender("flights")
    breakable.primary.set_fault(DOWN)
    assert (await one.send(numbered(1))).diverted == 1
    breakable.primary.clear_faults()
    assert await seconds_until(breakable.recorder.healthy_again) < 1 + 2
    assert [(await sender.send(numbered(1))).primary for sender in (one, two)] == [1, 1]
    pings = len(breakable.recorder.of(Pinged))
    await asyncio.sleep(2.2)
    assert len(breakable.recorder.of(Pinged)) == pings


async def test_section_5_a_ping_that_hangs_delays_the_way_back_by_no_more_than_the_interval_and_two_seconds(
    breakable: Breakable,
) -> None:
    async with breakable.pair.sender("flights") as sender:
        breakable.primary.set_fault(Fault(kind=FaultKind.RELEASED, on=(Operation.SEND,)))
        assert (await sender.send(numbered(1))).diverted == 1
        # Just after the next ping has begun, so that it hangs in the past's trouble.
        await asyncio.sleep(1.1)
        breakable.primary.clear_faults()
        assert await seconds_until(breakable.recorder.healthy_again) < 1 + 2
        assert (await sender.send(numbered(1, start=1))).primary == 1


async def test_section_5_with_a_store_one_process_pings_for_all_and_all_are_back_in_time() -> None:
    store = InMemoryHealthStore()
    recorders = [Recorder() for _ in range(3)]
    async with breakable_pair(store=store, ping_primary_interval=timedelta(seconds=2)) as breakable:
        breakable.primary.set_fault(FULL)
        pairs = [another(breakable, recorder, store, seed) for seed, recorder in enumerate(recorders)]
        try:
            for pair in pairs:
                await pair.__aenter__()
            async with breakable.pair.sender("flights"):
                breakable.pair.fail_over("flights", reason="test")
            senders = [await pair.sender("flights").__aenter__() for pair in pairs]
            # They know from the store, at once.
            assert [(await sender.send(numbered(1))).diverted for sender in senders] == [1, 1, 1]
            everybody = [breakable.recorder, *recorders]
            before = sum(len(each.of(Pinged)) for each in everybody)
            await asyncio.sleep(8.5)
            asked = sum(len(each.of(Pinged)) for each in everybody) - before
            assert asked <= 4 + 4, "four processes for four intervals would be 16 pings"
            breakable.primary.clear_faults()
            took = await asyncio.gather(*(seconds_until(each.healthy_again) for each in everybody))
            assert max(took) < 2 + 2
            assert [(await sender.send(numbered(1))).primary for sender in senders] == [1, 1, 1]
        finally:
            for pair in pairs:
                await pair.close()


async def test_section_4_a_process_that_begins_to_fail_joins_a_failover_that_others_have_confirmed() -> None:
    now = SystemClock().now()
    known = EntityHealth(State.FAILED_OVER, since=now - 100, last_ping=now - 0.2, reason="elsewhere", by="send")
    store = InMemoryHealthStore()
    async with (
        breakable_pair(store=store, failover_interval=timedelta(seconds=30)) as breakable,
        breakable.pair.sender("flights") as sender,
    ):
        await sender.send(numbered(1))
        await store.save("flights", known)
        breakable.primary.set_fault(DOWN)
        began = asyncio.get_running_loop().time()
        assert (await sender.send(numbered(1, start=1))).diverted == 1
        assert asyncio.get_running_loop().time() - began < 2
    assert breakable.recorder.states[:2] == [State.SUSPECT, State.FAILED_OVER]


async def test_section_5_a_fresh_failed_over_from_the_store_is_believed_without_a_ping() -> None:
    now = SystemClock().now()
    fresh = EntityHealth(State.FAILED_OVER, since=now - 60, last_ping=now - 0.1, reason="elsewhere", by="send")
    store = InMemoryHealthStore({"flights": fresh})
    async with breakable_pair(store=store) as breakable, breakable.pair.sender("flights") as sender:
        assert (await sender.send(numbered(1))).diverted == 1
        assert breakable.recorder.of(Pinged) == []


async def test_section_5_a_short_lived_process_asks_once_itself_when_nobody_has_looked_for_an_interval() -> None:
    now = SystemClock().now()
    stale = EntityHealth(State.FAILED_OVER, since=now - 60, last_ping=now - 11, reason="elsewhere", by="send")
    for fault, routes in ((None, (1, 0)), (FULL, (0, 1))):
        store = InMemoryHealthStore({"flights": stale})
        async with breakable_pair(store=store, ping_primary_interval=timedelta(seconds=10)) as breakable:
            if fault is not None:
                breakable.primary.set_fault(fault)
            async with breakable.pair.sender("flights") as sender:
                result = await sender.send(numbered(1))
            assert (result.primary, result.diverted) == routes
            assert len(breakable.recorder.of(Pinged)) == 1


async def test_section_5_the_other_probe_opens_a_sender_and_sends_nothing() -> None:
    refused = Fault(kind=FaultKind.INTERNAL_ERROR, on=(Operation.OPEN_SENDER, Operation.SEND))
    async with breakable_pair(probe="link") as breakable, breakable.pair.sender("flights") as sender:
        breakable.primary.set_fault(refused)
        assert (await sender.send(numbered(1))).diverted == 1
        await breakable.recorder.next_of(Pinged)
        assert [ping.succeeded for ping in breakable.recorder.of(Pinged)] == [False]
        breakable.primary.clear_faults()
        assert await seconds_until(breakable.recorder.healthy_again) < 1 + 2
        assert await breakable.ids_on_the_primary() == []


async def test_section_5_a_ping_is_taken_by_a_session_queue_too(breakable: Breakable) -> None:
    breakable.primary.namespace.create_queue(QueueDescription("seated", requires_session=True))
    assert await breakable.pair.ping("seated")


async def test_section_4_a_failover_by_hand_says_who_why_and_when(breakable: Breakable) -> None:
    breakable.pair.fail_over("flights", reason="rehearsal", by="ann")
    breakable.pair.mark_healthy("flights", reason="done", by="bob")
    changes = [event.after for event in breakable.recorder.of(HealthChanged)]
    assert [(each.state, each.reason, each.by) for each in changes] == [
        (State.FAILED_OVER, "rehearsal", "ann"),
        (State.HEALTHY, "done", "bob"),
    ]
    assert 0 <= SystemClock().now() - changes[0].since < 5
