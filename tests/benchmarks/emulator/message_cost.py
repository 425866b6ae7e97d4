"""CPU time of the server per message; the client is the unmodified SDK in another process.

A figure is the minimum of several rounds, because other load on the machine only adds to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, cast

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

from tests.benchmarks.emulator.bare_asyncio import bare_round_trip_cost
from tests.benchmarks.emulator.bare_proton import bare_receive_cost
from tests.benchmarks.emulator.measured_process import QUEUES, MeasuredProcess, serve
from tests.benchmarks.emulator.warm_caches import warm_cost
from tests.benchmarks.measure import Measure

_BODY: Final = b"x" * 200
_ROUNDS: Final = 3
_BATCHES: Final = 50
_SINGLES: Final = 3_000
_PREFETCH: Final = 1_000
_MICROSECONDS: Final = 1e6
_UNIT: Final = "us of CPU per message"


async def measures() -> list[Measure]:
    """Measure sending, receiving and settling, in memory and on disk."""
    with serve() as served:
        async with ServiceBusClient.from_connection_string(served.namespace.connection_string) as client:
            batch_size, in_memory = await _send(client, served=served)
            half = _ROUNDS * _BATCHES * batch_size // 2
            deleted = await _deliver(client, mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE, served=served, count=half)
            locked = await _deliver(client, mode=ServiceBusReceiveMode.PEEK_LOCK, served=served, count=half)
            settled = await _settle(client, served=served, prefetch=0)
            prefetched = await _settle(client, served=served, prefetch=_PREFETCH)
            in_ranges = await _settle_in_ranges(client, served=served)
    with serve(durable=True) as served:
        async with ServiceBusClient.from_connection_string(served.namespace.connection_string) as client:
            _, on_disk = await _send(client, served=served)
    bare = (
        min(bare_receive_cost(_BODY, batch_size=batch_size, batches=_BATCHES) for _ in range(_ROUNDS)) * _MICROSECONDS
    )
    # In a thread of its own, since it drives an event loop by hand.
    warm = await asyncio.to_thread(warm_cost) * _MICROSECONDS
    two_round_trips = min(2 * bare_round_trip_cost() for _ in range(_ROUNDS)) * _MICROSECONDS
    return [
        Measure(name=f"sent in batches of {batch_size}", value=in_memory, unit=_UNIT, at_most=3),
        Measure(name="the same bytes received by bare Proton", value=bare, unit=_UNIT),
        Measure(name="sent / bare Proton", value=in_memory / bare, unit="times"),
        Measure(name="delivered with prefetch, receive-and-delete", value=deleted, unit=_UNIT, at_most=8),
        Measure(name="delivered with prefetch, peek-lock", value=locked, unit=_UNIT, at_most=8),
        Measure(name="received and completed one by one", value=settled, unit=_UNIT, at_most=60),
        Measure(name="the same with warm caches, in one process", value=warm, unit=_UNIT),
        Measure(name="two round trips with bare asyncio", value=two_round_trips, unit=_UNIT),
        Measure(name="received and completed / bare asyncio", value=settled / two_round_trips, unit="times"),
        Measure(name="completed one by one, with prefetch", value=prefetched, unit=_UNIT),
        Measure(name="delivered with prefetch and completed in ranges", value=in_ranges, unit=_UNIT, at_most=15),
        Measure(name="sent in batches, durable", value=on_disk, unit=_UNIT),
        Measure(name="durable / in memory", value=on_disk / in_memory, unit="times", at_most=3),
    ]


async def full_batch(sender: ServiceBusSender) -> tuple[ServiceBusMessageBatch, int]:
    """Return a batch of the maximum size and its number of messages."""
    batch = await sender.create_message_batch()
    count = 0
    while True:
        try:
            batch.add_message(ServiceBusMessage(_BODY))
        except ValueError:
            return batch, count
        count += 1


async def _send(client: ServiceBusClient, *, served: MeasuredProcess) -> tuple[int, float]:
    async with client.get_queue_sender(QUEUES[0]) as sender:
        batch, count = await full_batch(sender)
        await sender.send_messages(batch)

        async def send() -> None:
            for _ in range(_BATCHES):
                await sender.send_messages(batch)

        return count, await _minimum(send, served=served, count=_BATCHES * count)


async def _deliver(
    client: ServiceBusClient, *, mode: ServiceBusReceiveMode, served: MeasuredProcess, count: int
) -> float:
    receiver = client.get_queue_receiver(QUEUES[0], receive_mode=mode, prefetch_count=_PREFETCH, max_wait_time=5)
    async with receiver:
        share = count // _ROUNDS

        async def receive() -> None:
            remaining = share
            while remaining > 0:
                remaining -= len(await receiver.receive_messages(max_message_count=min(remaining, _PREFETCH)))

        return await _minimum(receive, served=served, count=share)


async def _settle(client: ServiceBusClient, *, served: MeasuredProcess, prefetch: int) -> float:
    await _fill(client, _SINGLES * _ROUNDS)
    async with client.get_queue_receiver(QUEUES[1], prefetch_count=prefetch, max_wait_time=5) as receiver:

        async def settle() -> None:
            for _ in range(_SINGLES):
                (message,) = await receiver.receive_messages(max_message_count=1)
                await receiver.complete_message(message)

        return await _minimum(settle, served=served, count=_SINGLES)


async def _settle_in_ranges(client: ServiceBusClient, *, served: MeasuredProcess) -> float:
    """Complete what was received at a time with one disposition, which the SDK can but does not publish."""
    share = _SINGLES * _ROUNDS
    await _fill(client, share * _ROUNDS)
    async with client.get_queue_receiver(QUEUES[1], prefetch_count=_PREFETCH, max_wait_time=5) as receiver:

        async def settle() -> None:
            remaining = share
            while remaining > 0:
                received = await receiver.receive_messages(max_message_count=min(remaining, _PREFETCH))
                remaining -= len(received)
                first, last = (cast("Any", each) for each in (received[0], received[-1]))
                await cast("Any", receiver)._handler.settle_messages_async(
                    (first._delivery_id, last._delivery_id), last._delivery_tag, "accepted", await_outcome=True
                )

        return await _minimum(settle, served=served, count=share)


async def _fill(client: ServiceBusClient, count: int) -> None:
    async with client.get_queue_sender(QUEUES[1]) as sender:
        batch, size = await full_batch(sender)
        for _ in range(-(-count // size)):
            await sender.send_messages(batch)


async def _minimum(work: Callable[[], Awaitable[None]], *, served: MeasuredProcess, count: int) -> float:
    """Return the minimum CPU time per message over several rounds, in microseconds."""
    costs = []
    for _ in range(_ROUNDS):
        before = served.cpu()
        await work()
        costs.append((served.cpu() - before) / count * _MICROSECONDS)
    return min(costs)
