"""Memory per open connection and per stored message."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender

from tests.benchmarks.emulator.idle_client import connect
from tests.benchmarks.emulator.measured_process import QUEUES, MeasuredProcess, serve
from tests.benchmarks.emulator.message_cost import full_batch
from tests.benchmarks.measure import Measure

_CONNECTIONS: Final = 1_000
_MESSAGES: Final = 1_000_000
_KILOBYTE: Final = 1024
_PARTS: Final = 10


async def measures() -> list[Measure]:
    """Measure memory, and the effect of a long queue on the cost of sending."""
    return [*await _connections(), *await _stored()]


async def _connections() -> list[Measure]:
    with serve() as served:
        before = served.memory()
        namespace = served.namespace
        writers = [await connect(namespace.host, namespace.amqp_port, number=number) for number in range(_CONNECTIONS)]
        each = (served.memory() - before) / len(writers) / _KILOBYTE
        still_open = sum(not writer.is_closing() for writer in writers)
        for writer in writers:
            writer.close()
    return [
        Measure(name="connections open at once", value=still_open, unit="connections", at_least=_CONNECTIONS),
        Measure(name="memory per connection with a session and a link", value=each, unit="KiB"),
    ]


async def _stored() -> list[Measure]:
    with serve() as served:
        before = served.memory()
        async with _sender(served) as (sender, batch, count):
            batches = -(-_MESSAGES // count)
            part = batches // _PARTS
            at_start = await _cost(sender, batch, times=part, served=served)
            for _ in range(batches - 2 * part):
                await sender.send_messages(batch)
            at_end = await _cost(sender, batch, times=part, served=served)
        each = (served.memory() - before) / (batches * count)
    return [
        Measure(name=f"memory per message among {batches * count:,} stored", value=each, unit="bytes"),
        Measure(name="sending with a million stored / with none", value=at_end / at_start, unit="times", at_most=1.3),
    ]


async def _cost(
    sender: ServiceBusSender, batch: ServiceBusMessageBatch, *, times: int, served: MeasuredProcess
) -> float:
    before = served.cpu()
    for _ in range(times):
        await sender.send_messages(batch)
    return served.cpu() - before


@asynccontextmanager
async def _sender(served: MeasuredProcess) -> AsyncIterator[tuple[ServiceBusSender, ServiceBusMessageBatch, int]]:
    async with (
        ServiceBusClient.from_connection_string(served.namespace.connection_string) as client,
        client.get_queue_sender(QUEUES[0]) as sender,
    ):
        batch, count = await full_batch(sender)
        yield sender, batch, count
