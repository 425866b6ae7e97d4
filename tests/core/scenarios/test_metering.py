"""The meter counts every operation of a pair, as the service does (SPEC section 8)."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator.engine.namespace.entities import QueueEntity
from servicebus_pair.core.model.pricing import Operations, backlog_operations
from servicebus_pair.core.protocol.backlog_queues import backlog_queue
from tests.core.support.local_pair import LocalPair, numbered

pytestmark = pytest.mark.simulated


async def test_sends_diverts_pings_and_drain_are_counted(local_pair: LocalPair) -> None:
    pair = local_pair.pair
    before = pair.meter.read()
    async with pair.sender("flights") as sender:
        await sender.send(numbered(5))
        await sender.send(ServiceBusMessage(b"x" * 100_000))
        await pair.ping("flights")
        await pair.fail_over("flights", reason="test")
        await sender.send(numbered(3))
        await pair.mark_healthy("flights")
        assert pair.meter.read() - before == Operations(sends=6, further_increments=1, pings=1, diverts=3)
        sent = pair.meter.read()
        await pair.syphon().drain()
    drained = pair.meter.read() - sent
    assert (drained.sends, drained.receives, drained.settlements, drained.diverts) == (3, 3, 3, 0)
    assert drained.management_calls > 0, "peeks are billed too"


async def test_meter_agrees_with_the_service_and_the_estimate(local_pair: LocalPair) -> None:
    """Messages of 1 KB and 100,000 B pass through the backlog."""
    pair, sizes = local_pair.pair, [1_000] * 20 + [100_000] * 3
    before = pair.meter.read()
    await pair.fail_over("flights", reason="test")
    async with pair.sender("flights") as sender:
        await sender.send([ServiceBusMessage(b"x" * size) for size in sizes])
    await pair.mark_healthy("flights")
    assert (await pair.syphon().drain()).moved == {"flights": len(sizes)}
    metered = pair.meter.read() - before
    counters, accepted = [], 0
    for index in range(3):
        queue = local_pair.secondary.namespace.find(backlog_queue("contoso", index))
        assert isinstance(queue, QueueEntity)
        counters.append(queue.counters())
        accepted += queue.ingress.accepted
    primary = local_pair.primary.namespace.find("flights")
    assert isinstance(primary, QueueEntity)
    assert metered.diverts == accepted == len(sizes)
    assert metered.sends == primary.ingress.accepted == len(sizes)
    assert metered.receives == sum(each.delivered for each in counters) == len(sizes)
    assert metered.settlements == sum(each.completed for each in counters) == len(sizes)
    # Sent and received in the backlog, and sent to the primary; its consumer counts its own operations.
    assert metered.further_increments == 3 * 3
    estimate = backlog_operations(20, size_bytes=1_000) + backlog_operations(3, size_bytes=100_000)
    received_there = Operations(receives=23, settlements=23, further_increments=3)
    peeks_and_polls = Operations(management_calls=metered.management_calls, empty_receives=metered.empty_receives)
    assert metered == estimate - received_there + peeks_and_polls
