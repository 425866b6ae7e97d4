"""The syphon's throughput and memory, compared with a sequential loop and with the bare SDK's maximum.

Each namespace is a separate process. A drain is timed until it has found the backlog empty; the bare SDK is given the
number of messages instead. Both include attaching links. Ratios compare figures of one run, in which the syphon and the
bare SDK alternate, so that other load on the machine affects both.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from statistics import harmonic_mean
from time import perf_counter

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from servicebus_emulator import Fault, FaultKind
from servicebus_emulator.testing.process import EmulatorProcess
from servicebus_pair.core import Endpoint, NamespacePair, PairOptions
from servicebus_pair.core.protocol.backlog_message import wrap
from servicebus_pair.core.protocol.backlog_queues import BACKLOG_QUEUE, backlog_queue_paths
from servicebus_pair.core.sdk.administration.data_plane import ServiceBusAdministration
from servicebus_pair.core.sdk.message_batch import EncodedBatch
from servicebus_pair.core.sdk.messages import to_amqp_message
from tests.benchmarks.core.baseline import QUEUE, endpoint, send_batches
from tests.benchmarks.measure import Measure

__all__ = ["measures"]

_QUEUES = 10
_ROUND_TRIPS_MS = (0, 1, 5, 20)
_MESSAGES = 20_000
_ROUNDS = 2
_SEQUENTIAL_MESSAGES = 150
_CONCURRENT_SETTLEMENTS = 32
_RECEIVE_BATCH = 100
_FEW, _MANY = 20_000, 200_000
_UNIT = "msg/s"
_MEGABYTE = 2**20


def measures() -> Iterator[Measure]:
    """Measure throughput for several round-trip times, session order, and memory."""
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
    yield from asyncio.run(_session_order())
    few, many = asyncio.run(_drain_in_process(_FEW)), asyncio.run(_drain_in_process(_MANY))
    ratio = (many["seconds"] / _MANY) / (few["seconds"] / _FEW)
    yield Measure(name=f"drain, time per message of {_MANY} / of {_FEW}", value=ratio, unit="ratio", at_most=1.1)
    name = f"drain of {_MANY} messages of 1 KB over {_QUEUES} queues, peak memory"
    yield Measure(name=name, value=many["peak_bytes"] / _MEGABYTE, unit="MB", at_most=250)
    growth = many["peak_bytes"] / few["peak_bytes"]
    yield Measure(name=f"drain, peak memory of {_MANY} / of {_FEW}", value=growth, unit="ratio", at_most=1.1)


async def _rates(round_trip: float) -> dict[str, float]:
    """Return the messages per second of each contender."""
    async with _namespaces(round_trip) as (primary, secondary):
        await _fill(secondary, _SEQUENTIAL_MESSAGES, queues=1)
        sequential = await _move_sequentially(primary, secondary)
        syphon: list[float] = []
        receive: list[float] = []
        send: list[float] = []
        for _ in range(_ROUNDS):
            await _fill(secondary, _MESSAGES)
            receive.append(await _receive(secondary))
            await _fill(secondary, _MESSAGES)
            syphon.append(await _drain(primary, secondary, ordering="none"))
            send.append(await _send(primary))
        # Every round has the same number of messages, so the harmonic mean is the rate over all rounds.
        return {
            "syphon": harmonic_mean(syphon),
            "sequential loop": sequential,
            "bare batched send": harmonic_mean(send),
            "bare receive and settle": harmonic_mean(receive),
        }


async def _drain(primary: Endpoint, secondary: Endpoint, *, ordering: str) -> float:
    options = PairOptions(backlog_queue_count=_QUEUES, ordering=ordering)
    async with NamespacePair(primary, secondary, options) as pair:
        started = perf_counter()
        report = await pair.syphon().drain()
        rate = report.moved_total / (perf_counter() - started)
    assert report.moved_total == _MESSAGES
    return rate


async def _session_order() -> list[Measure]:
    """Measure the cost of session order: one link per queue, and a peek per batch."""
    async with _namespaces(0) as (primary, secondary):
        rates: dict[str, float] = {}
        for ordering in ("none", "session"):
            await _fill(secondary, _MESSAGES)
            rates[ordering] = await _drain(primary, secondary, ordering=ordering)
    name = "drain on loopback in session order"
    return [
        Measure(name=name, value=rates["session"], unit=_UNIT),
        Measure(name=f"{name} / without", value=rates["session"] / rates["none"], unit="ratio"),
    ]


@asynccontextmanager
async def _namespaces(round_trip_ms: float) -> AsyncIterator[tuple[Endpoint, Endpoint]]:
    """Start both namespaces with their queues, and add the round trip."""
    with ExitStack() as stack:
        endpoints: list[Endpoint] = []
        for name, queues in (("contoso", (QUEUE,)), ("contoso-dr", backlog_queue_paths("contoso", _QUEUES))):
            served = stack.enter_context(EmulatorProcess([name]))[name]
            async with ServiceBusAdministration(endpoint(served)) as administration:
                for queue in queues:
                    await administration.create_queue(queue, BACKLOG_QUEUE)
            if round_trip_ms:
                served.set_fault(Fault(kind=FaultKind.LATENCY, delay=round_trip_ms / 1000))
            endpoints.append(endpoint(served))
        yield endpoints[0], endpoints[1]


def _client(namespace: Endpoint) -> ServiceBusClient:
    assert namespace.connection_string is not None
    return ServiceBusClient.from_connection_string(namespace.connection_string.reveal())


async def _fill(secondary: Endpoint, count: int, *, body_bytes: int = 200, queues: int = _QUEUES) -> None:
    async with _client(secondary) as client:
        for number, queue in enumerate(backlog_queue_paths("contoso", queues)):
            async with client.get_queue_sender(queue) as sender:
                limit = (await sender.create_message_batch()).max_size_in_bytes
                for batch in _batches(limit, range(number, count, queues), body_bytes=body_bytes):
                    await sender.send_messages(batch.public_form)


def _batches(limit: int, numbers: Sequence[int], *, body_bytes: int) -> Iterator[EncodedBatch]:
    batch = EncodedBatch(limit)
    for number in numbers:
        message = ServiceBusMessage(b"x" * body_bytes, message_id=f"m{number}")
        wrapped = wrap(to_amqp_message(message), entity=QUEUE)
        if not batch.try_add(wrapped):
            yield batch
            batch = EncodedBatch(limit)
            batch.try_add(wrapped)
    yield batch


async def _move_sequentially(primary: Endpoint, secondary: Endpoint) -> float:
    """Receive, send and complete one message at a time."""
    async with (
        _client(primary) as primary_client,
        _client(secondary) as secondary_client,
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
    async with _client(secondary) as client:
        started = perf_counter()
        queues = backlog_queue_paths("contoso", _QUEUES)
        await asyncio.gather(*(_receive_queue(client, queue, _MESSAGES // _QUEUES) for queue in queues))
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
    async with _client(primary) as client, client.get_queue_sender(QUEUE) as sender:
        started = perf_counter()
        messages = (ServiceBusMessage(b"x" * 200, message_id=f"n{number}") for number in range(_MESSAGES))
        await send_batches(sender, messages)
        return _MESSAGES / (perf_counter() - started)


async def _drain_in_process(count: int) -> dict[str, float]:
    """Drain messages of 1 KB in a separate process, which reports its peak memory."""
    async with _namespaces(0) as (primary, secondary):
        await _fill(secondary, count, body_bytes=1024)
        texts = [each.connection_string for each in (primary, secondary)]
        settings = [text.reveal() for text in texts if text is not None]
        command = [sys.executable, "-m", "tests.benchmarks.core.drain_process", *settings, str(_QUEUES)]
        finished = await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, text=True)
        result: dict[str, float] = json.loads(finished.stdout.splitlines()[-1])
        assert result["moved"] == count
        return result
