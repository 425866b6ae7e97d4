"""Sends to a backlog that is busy, loses connections or does not respond (SPEC section 4)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core.model.errors import NoBacklogQueueError
from servicebus_pair.core.model.events import QueuePulled
from tests.core.support.local_pair import QUICK_OPTIONS, LocalPair, numbered, open_local_pair

pytestmark = pytest.mark.simulated


@pytest.mark.slow
async def test_section_4_sends_to_a_frozen_secondary_fail_in_bounded_time() -> None:
    """Twelve senders at once: they share the links, and do not wait for each queue one after another."""
    options = replace(QUICK_OPTIONS, backlog_queue_count=10, failover_interval=timedelta(seconds=2))
    async with open_local_pair("flights", options=options) as local_pair:
        await local_pair.pair.fail_over("flights", reason="test", hold=timedelta(minutes=5))
        senders = [local_pair.pair.sender("flights") for _ in range(12)]
        warm = [await sender.send(numbered(1, start=n)) for n, sender in enumerate(senders)]
        assert sum(each.diverted for each in warm) == 12
        local_pair.secondary.set_fault(Fault(kind=FaultKind.FREEZE))

        async def fails(n: int) -> None:
            with pytest.raises(NoBacklogQueueError) as caught:
                await senders[n].send(numbered(2, start=100))
            assert len(caught.value.unsent) == 2

        loop = asyncio.get_running_loop()
        started = loop.time()
        await asyncio.gather(*(fails(n) for n in range(12)))
        assert 5 < loop.time() - started < 16
        started = loop.time()
        await fails(0)
        assert loop.time() - started < 7
        local_pair.secondary.clear_faults()
        assert (await senders[0].send(numbered(1, start=50))).diverted == 1
        assert "m50" in await local_pair.backlog_ids()


async def test_section_4_a_busy_backlog_queue_is_retried_after_a_delay(local_pair: LocalPair) -> None:
    local_pair.secondary.set_fault(Fault(kind=FaultKind.SERVER_BUSY, count=3))
    await local_pair.pair.fail_over("flights", reason="test", hold=timedelta(minutes=1))
    async with local_pair.pair.sender("flights") as sender:
        assert (await sender.send(numbered(3))).diverted == 3
    assert local_pair.recorder.of(QueuePulled) == []


async def test_section_4_one_lost_connection_to_the_backlog_is_retried(local_pair: LocalPair) -> None:
    await local_pair.pair.fail_over("flights", reason="test", hold=timedelta(minutes=1))
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        local_pair.secondary.set_fault(Fault(kind=FaultKind.RESET, count=1))
        assert (await sender.send(numbered(1, start=1))).diverted == 1
    assert local_pair.recorder.of(QueuePulled) == []
