"""Much at once: connections that are open, and messages that are stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

from tests.benchmarks.emulator.clients import connect
from tests.benchmarks.emulator.flows import full_batch
from tests.benchmarks.emulator.served import QUEUES, Served, serve
from tests.benchmarks.measure import Measure

__all__ = ["measures"]

_CONNECTIONS: Final = 1_000
_MESSAGES: Final = 1_000_000
_KILOBYTE: Final = 1024
_SHARE: Final = 10


async def measures() -> list[Measure]:
    """Measure what a connection and a stored message take, and what a long queue does to sending."""
    return [*await _connections(), *await _stored()]


async def _connections() -> list[Measure]:
    with serve() as served:
        before = served.memory()
        place = served.place
        writers = [await connect(place.host, place.amqp_port, number=number) for number in range(_CONNECTIONS)]
        each = (served.memory() - before) / len(writers) / _KILOBYTE
        still_open = sum(not writer.is_closing() for writer in writers)
        for writer in writers:
            writer.close()
    return [
        Measure(name="connections open at once", value=still_open, unit="connections", at_least=_CONNECTIONS),
        Measure(name="memory of a connection with a session and a link", value=each, unit="KiB"),
    ]


async def _stored() -> list[Measure]:
    with serve() as served:
        before = served.memory()
        async with _sender(served) as (sender, batch, count):
            batches = -(-_MESSAGES // count)
            part = batches // _SHARE
            at_start = await _cost(sender, batch, times=part, served=served)
            for _ in range(batches - 2 * part):
                await sender.send_messages(batch)
            at_end = await _cost(sender, batch, times=part, served=served)
        each = (served.memory() - before) / (batches * count)
    return [
        Measure(name=f"memory of a message among {batches * count:,} stored", value=each, unit="bytes"),
        Measure(name="sending to a million stored / to none", value=at_end / at_start, unit="times", at_most=1.3),
    ]


async def _cost(sender: ServiceBusSender, batch: ServiceBusMessageBatch, *, times: int, served: Served) -> float:
    before = served.cpu()
    for _ in range(times):
        await sender.send_messages(batch)
    return served.cpu() - before


@asynccontextmanager
async def _sender(served: Served) -> AsyncIterator[tuple[ServiceBusSender, ServiceBusMessageBatch, int]]:
    async with (
        ServiceBusClient.from_connection_string(served.place.connection_string) as client,
        client.get_queue_sender(QUEUES[0]) as sender,
    ):
        batch, count = await full_batch(sender)
        yield sender, batch, count
