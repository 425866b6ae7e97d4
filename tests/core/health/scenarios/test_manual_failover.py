"""Manual failover and recovery at any time, even against the actual state (SPEC sections 4 and 5)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core import HealthState
from servicebus_pair.core.model.events import HealthChanged, Pinged
from tests.core.support.local_pair import (
    FAILOVER_INTERVAL,
    FAILOVER_MARGIN,
    PING_INTERVAL,
    LocalPair,
    numbered,
    open_quick_pair,
)

pytestmark = pytest.mark.simulated

BROKEN = Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights")


def now() -> float:
    return asyncio.get_running_loop().time()


async def test_section_4_a_manual_failover_ends_the_retries_of_a_suspect_entity() -> None:
    async with (
        open_quick_pair(failover_interval=timedelta(minutes=5)) as local_pair,
        local_pair.pair.sender("flights") as sender,
    ):
        await sender.send(numbered(1))
        local_pair.primary.set_fault(BROKEN)
        sending = [asyncio.create_task(sender.send(numbered(1, start=n))) for n in range(1, 6)]
        await local_pair.recorder.wait_for(HealthChanged)
        started = now()
        await local_pair.pair.fail_over("flights", reason="we know already", by="ann")
        assert [(await each).diverted for each in sending] == [1] * 5
        assert now() - started < FAILOVER_MARGIN
    assert local_pair.recorder.states[:2] == [HealthState.SUSPECT, HealthState.FAILED_OVER]


async def test_section_4_after_a_manual_failover_while_reopening_nothing_is_sent_to_the_primary() -> None:
    async with (
        open_quick_pair(failover_interval=timedelta(minutes=5)) as local_pair,
        local_pair.pair.sender("flights") as sender,
    ):
        await sender.send(numbered(1))
        local_pair.primary.set_fault(Fault(kind=FaultKind.FREEZE, on=(Operation.OPEN_SENDER,)))
        local_pair.primary.set_fault(Fault(kind=FaultKind.RESET, on=(Operation.SEND,), count=1))
        sending = asyncio.create_task(sender.send(numbered(1, start=1)))
        while not local_pair.primary.faults[0].strikes:  # noqa: ASYNC110 - a fault has no event
            await asyncio.sleep(0.01)
        await local_pair.pair.fail_over("flights", reason="we know already", by="ann")
        local_pair.primary.clear_faults()
        assert (await sending).diverted == 1
        assert await local_pair.primary_ids() == ["m0"]


async def test_section_4_an_entity_marked_healthy_during_its_outage_fails_over_again(
    local_pair: LocalPair,
) -> None:
    async with local_pair.pair.sender("flights") as sender:
        local_pair.primary.set_fault(Fault(kind=FaultKind.FREEZE))
        assert (await sender.send(numbered(1))).diverted == 1
        # Once a ping hangs: neither marking healthy nor the next send may wait for it.
        await asyncio.sleep(PING_INTERVAL + 0.3)
        await local_pair.pair.mark_healthy("flights", reason="a mistake", by="bob")
        started = now()
        assert (await sender.send(numbered(1, start=1))).diverted == 1
        assert now() - started < FAILOVER_INTERVAL + FAILOVER_MARGIN
        local_pair.primary.clear_faults()
        local_pair.recorder.recovered.clear()
        await asyncio.wait_for(local_pair.recorder.recovered.wait(), PING_INTERVAL + FAILOVER_MARGIN)
        assert (await sender.send(numbered(1, start=2))).primary == 1
    changes = [state for state in local_pair.recorder.states if state is not HealthState.SUSPECT]
    assert changes == [HealthState.FAILED_OVER, HealthState.HEALTHY] * 2


async def test_section_4_conflicting_manual_changes_during_sends_lose_nothing_and_leave_at_most_one_ping_task(
    local_pair: LocalPair,
) -> None:
    senders = [local_pair.pair.sender("flights") for _ in range(5)]
    accepted: set[str] = set()

    async def send(which: int) -> None:
        for step in range(8):
            number = which * 100 + step
            accepted.update((await senders[which].send(numbered(2, start=number * 2))).message_ids)

    async def disagree() -> None:
        for step in range(40):
            if step % 2:
                await local_pair.pair.mark_healthy("flights", reason="no", by="bob")
            else:
                await local_pair.pair.fail_over("flights", reason="yes", by="ann")
            assert sum(not task.done() for task in local_pair.pair._open().prober._tasks.values()) <= 1
            await asyncio.sleep(0.03)

    await asyncio.gather(disagree(), *(send(which) for which in range(5)))
    await local_pair.pair.mark_healthy("flights")
    stored = [*await local_pair.primary_ids(), *await local_pair.backlog_ids()]
    assert len(accepted) == 5 * 8 * 2
    assert accepted <= set(stored)
    pings = len(local_pair.recorder.of(Pinged))
    await asyncio.sleep(PING_INTERVAL + 0.5)
    assert len(local_pair.recorder.of(Pinged)) == pings


async def test_section_4_a_send_to_a_failed_over_entity_does_not_wait_for_a_hanging_ping() -> None:
    """Even if the ping is the first to open a link to the primary."""
    ten = timedelta(seconds=10)
    async with (
        open_quick_pair(ping_timeout=ten, ping_primary_interval=ten) as local_pair,
        local_pair.pair.sender("flights") as sender,
    ):
        local_pair.primary.set_fault(Fault(kind=FaultKind.FREEZE))
        await local_pair.pair.fail_over("flights", reason="test")
        pinging = asyncio.create_task(local_pair.pair.ping("flights"))
        await asyncio.sleep(0.1)
        started = now()
        assert (await sender.send(numbered(1))).diverted == 1
        assert now() - started < FAILOVER_MARGIN
        assert not pinging.done()
        pinging.cancel()
        await asyncio.wait({pinging})
