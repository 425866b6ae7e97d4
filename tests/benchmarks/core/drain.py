"""The syphon's throughput and memory, compared with a sequential loop and with the bare SDK's maximum.

Each namespace is a separate process. A drain is timed until it has found the backlog empty; the bare SDK is given the
number of messages instead. Both include attaching links. Ratios compare figures of one run, in which the syphon and the
bare SDK alternate, so that other load on the machine affects both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from statistics import harmonic_mean
from time import perf_counter

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from servicebus_pair.core import Endpoint, NamespacePair, PairOptions
from servicebus_pair.core.protocol.backlog_queues import backlog_queue_paths
from tests.benchmarks.core.backlog import QUEUES, client, fill, namespaces
from tests.benchmarks.core.baseline import QUEUE, send_batches
from tests.benchmarks.core.mover import DrainResult, run_mover
from tests.benchmarks.measure import Measure

_ROUND_TRIPS_MS = (0, 5)
_MESSAGES = 10_000
_ROUNDS = 2
_SEQUENTIAL_MESSAGES = 150
_CONCURRENT_SETTLEMENTS = 32
_RECEIVE_BATCH = 100
_FEW, _MANY = 20_000, 200_000
_UNIT = "msg/s"
_MEGABYTE = 2**20


def measures() -> Iterator[Measure]:
    """Measure throughput for several round-trip times, and memory."""
    for round_trip in _ROUND_TRIPS_MS:
        name = "drain on loopback" if round_trip == 0 else f"drain at {round_trip} ms"
        rates = asyncio.run(_rates(round_trip))
        for what, rate in rates.items():
            yield Measure(name=f"{name}, {what}", value=rate, unit=_UNIT)
        syphon, sequential, send, receive = rates.values()
        ratio = syphon / sequential
        goal = {0: 2.0, 5: 20.0}.get(round_trip)
        yield Measure(name=f"{name}, syphon / sequential loop", value=ratio, unit="ratio", at_least=goal)
        ratio = syphon / min(send, receive)
        yield Measure(name=f"{name}, syphon / maximum of the bare SDK", value=ratio, unit="ratio", at_least=0.8)
    few, many = asyncio.run(_drain_in_process(_FEW)), asyncio.run(_drain_in_process(_MANY))
    ratio = (many.seconds / _MANY) / (few.seconds / _FEW)
    yield Measure(name=f"drain, time per message of {_MANY} / of {_FEW}", value=ratio, unit="ratio", at_most=1.1)
    name = f"drain of {_MANY} messages of 1 KB over {QUEUES} queues, peak memory"
    yield Measure(name=name, value=many.peak_bytes / _MEGABYTE, unit="MB", at_most=120)
    growth = many.peak_bytes / few.peak_bytes
    yield Measure(name=f"drain, peak memory of {_MANY} / of {_FEW}", value=growth, unit="ratio", at_most=1.1)


async def _rates(round_trip: float) -> dict[str, float]:
    """Return the messages per second of each contender."""
    async with namespaces() as served:
        primary, secondary = served.primary, served.secondary
        served.delay(round_trip / 1000)
        await fill(secondary, _SEQUENTIAL_MESSAGES, queues=1)
        sequential = await _move_sequentially(primary, secondary)
        syphon: list[float] = []
        receive: list[float] = []
        send: list[float] = []
        for _ in range(_ROUNDS):
            await fill(secondary, _MESSAGES)
            receive.append(await _receive(secondary))
            await fill(secondary, _MESSAGES)
            syphon.append(await _drain(primary, secondary))
            send.append(await _send(primary))
        # Every round has the same number of messages, so the harmonic mean is the rate over all rounds.
        return {
            "syphon": harmonic_mean(syphon),
            "sequential loop": sequential,
            "bare batched send": harmonic_mean(send),
            "bare receive and settle": harmonic_mean(receive),
        }


async def _drain(primary: Endpoint, secondary: Endpoint) -> float:
    options = PairOptions(backlog_queue_count=QUEUES)
    async with NamespacePair(primary, secondary, options) as pair:
        started = perf_counter()
        report = await pair.syphon().drain()
        rate = report.moved_total / (perf_counter() - started)
    assert report.moved_total == _MESSAGES
    return rate


async def _move_sequentially(primary: Endpoint, secondary: Endpoint) -> float:
    """Receive, send and complete one message at a time."""
    async with (
        client(primary) as primary_client,
        client(secondary) as secondary_client,
        primary_client.get_queue_sender(QUEUE) as sender,
        secondary_client.get_queue_receiver(backlog_queue_paths("contoso", 1)[0]) as receiver,
    ):
        started = perf_counter()
        for _ in range(_SEQUENTIAL_MESSAGES):
            [message] = await receiver.receive_messages(max_message_count=1, max_wait_time=5)
            await sender.send_messages(ServiceBusMessage(b"".join(message.body), message_id=message.message_id))
            await receiver.complete_message(message)
        return _SEQUENTIAL_MESSAGES / (perf_counter() - started)


async def _receive(secondary: Endpoint) -> float:
    """Receive from all queues and complete concurrently: the fastest way found with the SDK's public API."""
    async with client(secondary) as opened:
        started = perf_counter()
        queues = backlog_queue_paths("contoso", QUEUES)
        await asyncio.gather(*(_receive_queue(opened, queue, _MESSAGES // QUEUES) for queue in queues))
        return _MESSAGES / (perf_counter() - started)


async def _receive_queue(client: ServiceBusClient, queue: str, remaining: int) -> None:
    slots = asyncio.Semaphore(_CONCURRENT_SETTLEMENTS)

    async def complete(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> None:
        async with slots:
            await receiver.complete_message(message)

    async with client.get_queue_receiver(queue) as receiver:
        while remaining:
            batch = await receiver.receive_messages(max_message_count=min(_RECEIVE_BATCH, remaining), max_wait_time=5)
            await asyncio.gather(*(complete(receiver, message) for message in batch))
            remaining -= len(batch)


async def _send(primary: Endpoint) -> float:
    async with client(primary) as opened, opened.get_queue_sender(QUEUE) as sender:
        started = perf_counter()
        messages = (ServiceBusMessage(b"x" * 200, message_id=f"n{number}") for number in range(_MESSAGES))
        await send_batches(sender, messages)
        return _MESSAGES / (perf_counter() - started)


async def _drain_in_process(count: int) -> DrainResult:
    """Drain messages of 1 KB in a separate process, which reports its peak memory."""
    async with namespaces() as served:
        await fill(served.secondary, count, body_bytes=1024)
        return await run_mover(served, count=count)
