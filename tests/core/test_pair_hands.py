"""Failing over and marking healthy by hand, at any moment and against the facts (SPEC sections 4 and 5)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core import State
from servicebus_pair.core.errors import PairClosedError
from servicebus_pair.core.events import HealthChanged, Pinged
from tests.core.breakable import GRACE, INTERVAL, PING, Breakable, breakable_pair, numbered

pytestmark = pytest.mark.simulated

BROKEN = Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights")


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_section_4_a_failover_by_hand_ends_the_waiting_of_a_suspect_entity() -> None:
    async with (
        breakable_pair(failover_interval=timedelta(minutes=5)) as breakable,
        breakable.pair.sender("flights") as sender,
    ):
        await sender.send(numbered(1))
        breakable.primary.set_fault(BROKEN)
        sending = [asyncio.create_task(sender.send(numbered(1, start=n))) for n in range(1, 6)]
        await breakable.recorder.next_of(HealthChanged)
        began = now()
        breakable.pair.fail_over("flights", reason="we know already", by="ann")
        assert [(await each).diverted for each in sending] == [1] * 5
        assert now() - began < GRACE
    assert breakable.recorder.states[:2] == [State.SUSPECT, State.FAILED_OVER]


async def test_section_4_a_failover_by_hand_while_a_link_is_opened_anew_lets_nothing_pass() -> None:
    async with (
        breakable_pair(failover_interval=timedelta(minutes=5)) as breakable,
        breakable.pair.sender("flights") as sender,
    ):
        await sender.send(numbered(1))
        breakable.primary.set_fault(Fault(kind=FaultKind.FREEZE, on=(Operation.OPEN_SENDER,)))
        breakable.primary.set_fault(Fault(kind=FaultKind.RESET, on=(Operation.SEND,), count=1))
        sending = asyncio.create_task(sender.send(numbered(1, start=1)))
        while not breakable.primary.faults[0].strikes:  # noqa: ASYNC110 - nobody is told of a strike
            await asyncio.sleep(0.01)
        breakable.pair.fail_over("flights", reason="we know already", by="ann")
        breakable.primary.clear_faults()
        assert (await sending).diverted == 1
        assert await breakable.ids_on_the_primary() == ["m0"]


async def test_section_4_an_entity_that_is_marked_healthy_while_it_is_down_fails_over_again_in_time(
    breakable: Breakable,
) -> None:
    async with breakable.pair.sender("flights") as sender:
        breakable.primary.set_fault(Fault(kind=FaultKind.FREEZE))
        assert (await sender.send(numbered(1))).diverted == 1
        # Not before a ping hangs: marking healthy must not wait for it, nor may the next send.
        await asyncio.sleep(PING + 0.3)
        breakable.pair.mark_healthy("flights", reason="a mistake", by="bob")
        began = now()
        assert (await sender.send(numbered(1, start=1))).diverted == 1
        assert now() - began < INTERVAL + GRACE
        breakable.primary.clear_faults()
        breakable.recorder.healthy_again.clear()
        await asyncio.wait_for(breakable.recorder.healthy_again.wait(), PING + GRACE)
        assert (await sender.send(numbered(1, start=2))).primary == 1
    changes = [state for state in breakable.recorder.states if state is not State.SUSPECT]
    assert changes == [State.FAILED_OVER, State.HEALTHY] * 2


async def test_section_4_hands_that_disagree_while_all_send_lose_nothing_and_leave_one_ping_at_most(
    breakable: Breakable,
) -> None:
    senders = [breakable.pair.sender("flights") for _ in range(5)]
    accepted: set[str] = set()

    async def send(which: int) -> None:
        for turn in range(8):
            number = which * 100 + turn
            accepted.update((await senders[which].send(numbered(2, start=number * 2))).message_ids)

    async def disagree() -> None:
        for turn in range(40):
            if turn % 2:
                breakable.pair.mark_healthy("flights", reason="no", by="bob")
            else:
                breakable.pair.fail_over("flights", reason="yes", by="ann")
            assert sum(not task.done() for task in breakable.pair._open().prober._tasks.values()) <= 1
            await asyncio.sleep(0.03)

    await asyncio.gather(disagree(), *(send(which) for which in range(5)))
    breakable.pair.mark_healthy("flights")
    stored = [*await breakable.ids_on_the_primary(), *await breakable.ids_in_the_backlog()]
    assert len(accepted) == 5 * 8 * 2
    assert accepted <= set(stored)
    pings = len(breakable.recorder.of(Pinged))
    await asyncio.sleep(PING + 0.5)
    assert len(breakable.recorder.of(Pinged)) == pings


async def test_section_4_a_send_to_a_failed_over_entity_does_not_wait_for_a_ping_that_hangs() -> None:
    """Also when no link to the primary was ever open, so that the ping is what opens it."""
    ten = timedelta(seconds=10)
    async with (
        breakable_pair(ping_timeout=ten, ping_primary_interval=ten) as breakable,
        breakable.pair.sender("flights") as sender,
    ):
        breakable.primary.set_fault(Fault(kind=FaultKind.FREEZE))
        breakable.pair.fail_over("flights", reason="test")
        pinging = asyncio.create_task(breakable.pair.ping("flights"))
        await asyncio.sleep(0.1)
        began = now()
        assert (await sender.send(numbered(1))).diverted == 1
        assert now() - began < GRACE
        assert not pinging.done()
        pinging.cancel()
        await asyncio.wait({pinging})


async def test_section_7_pings_end_quietly_with_a_client_that_is_faulted(breakable: Breakable) -> None:
    breakable.primary.set_fault(Fault(kind=FaultKind.QUOTA_EXCEEDED, entity="flights"))
    breakable.pair.fail_over("flights", reason="test")
    shared = breakable.pair._open()
    [pings] = shared.prober._tasks.values()
    shared.primary.fault(PairClosedError("its process was told to stop"))
    await asyncio.wait_for(pings, PING + GRACE)
    assert pings.exception() is None
