"""Outages of namespaces that run as processes and are killed or frozen (SPEC sections 4 and 6)."""

from __future__ import annotations

import asyncio

from servicebus_pair.core import HealthState
from servicebus_pair.core.model.events import Pinged
from tests.core.conftest import TwoNamespaces
from tests.core.support.local_pair import FAILOVER_INTERVAL, FAILOVER_MARGIN, EventRecorder, numbered
from tests.core.support.queues import peek_all


async def test_section_4_a_send_that_meets_the_outage_is_diverted(
    namespaces: TwoNamespaces,
) -> None:
    recorder = EventRecorder()
    async with namespaces.pair(observers=[recorder]) as pair, pair.sender("flights") as sender:
        await pair.provision()
        await sender.send(numbered(10))
        namespaces.kill(namespaces.primary)
        started = asyncio.get_running_loop().time()
        result = await sender.send(numbered(10, start=10))
        took = asyncio.get_running_loop().time() - started
        assert (result.primary, result.diverted) == (0, 10)
        assert took < FAILOVER_INTERVAL + FAILOVER_MARGIN
        assert pair.health("flights").failed_over
        namespaces.start(namespaces.primary)
        await recorder.recovered.wait()
        back = await sender.send(numbered(10, start=20))
        assert (back.primary, back.diverted) == (10, 0)
        drained = await pair.syphon().drain()
    held = await peek_all(namespaces.primary.connection_string, "flights")
    assert drained.moved == {"flights": 10}
    assert drained.empty
    assert sorted(message.message_id or "" for message in held) == sorted(f"m{n}" for n in range(30))
    assert recorder.states == [HealthState.SUSPECT, HealthState.FAILED_OVER, HealthState.HEALTHY]
    assert any(ping.succeeded for ping in recorder.of(Pinged))
