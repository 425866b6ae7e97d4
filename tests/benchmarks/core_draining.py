"""What the syphon moves beside a naive loop, beside the most that the bare SDK could, and with how much memory.

Each namespace is a process of its own. A drain is timed from its call to its return, so finding the
end belongs to it; the bare SDK is told how many messages there are, and does not look for it. Opening
the links counts on both sides. Ratios compare figures of one run, in which ours and the ceiling take turns, so that
what else the machine does meets both.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from statistics import harmonic_mean
from time import perf_counter

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from servicebus_emulator.process import EmulatorProcess
from servicebus_emulator.served import ServedNamespace
from servicebus_pair.core import Endpoint, NamespacePair, PairOptions
from servicebus_pair.core.administration import ServiceBusAdministration
from servicebus_pair.core.backlog import BACKLOG_QUEUE, backlog_queues
from servicebus_pair.core.envelope import wrap
from servicebus_pair.core.wire import WireBatch
from tests.benchmarks.delay_proxy import delayed
from tests.benchmarks.drain_process import QUEUE
from tests.benchmarks.measure import Measure

__all__ = ["measures"]

_QUEUES = 10
_ROUND_TRIPS_MS = (0, 1, 5, 20)
_MOVED = 20_000
_TURNS = 2
_NAIVELY = 150
_IN_FLIGHT = 32
_HAND = 100
_FEW, _MANY = 20_000, 200_000
_BODY_BYTES = 1024
_UNIT = "msg/s"
_MEGABYTE = 2**20


@dataclass(frozen=True, slots=True)
class _Ways:
    """How many messages a second each way moves."""

    ours: float
    naive: float
    send: float
    receive: float

    @property
    def ceiling(self) -> float:
        return min(self.send, self.receive)


@dataclass(frozen=True, slots=True)
class _Drained:
    seconds: float
    peak_bytes: int


def measures() -> Iterator[Measure]:
    """Measure, and compare with the goals."""
    for round_trip in _ROUND_TRIPS_MS:
        where = "on loopback" if round_trip == 0 else f"at {round_trip} ms"
        ways = asyncio.run(_ways(round_trip))
        yield Measure(name=f"drain {where}, ours", value=ways.ours, unit=_UNIT)
        yield Measure(name=f"drain {where}, naive loop", value=ways.naive, unit=_UNIT)
        yield Measure(name=f"drain {where}, bare batched send", value=ways.send, unit=_UNIT)
        yield Measure(name=f"drain {where}, bare receive and bounded settle", value=ways.receive, unit=_UNIT)
        goal = {0: 2.0, 5: 20.0}.get(round_trip)
        yield Measure(name=f"drain {where}, ours / naive", value=ways.ours / ways.naive, unit="ratio", at_least=goal)
        yield Measure(name=f"drain {where}, ours / ceiling", value=ways.ours / ways.ceiling, unit="ratio", at_least=0.8)
    yield from asyncio.run(_in_order())
    few, many = asyncio.run(_size(_FEW)), asyncio.run(_size(_MANY))
    ratio = (many.seconds / _MANY) / (few.seconds / _FEW)
    yield Measure(name=f"drain, time per message of {_MANY} / of {_FEW}", value=ratio, unit="ratio", at_most=1.1)
    name = f"drain of {_MANY} messages of 1 KB over {_QUEUES} queues, peak memory"
    yield Measure(name=name, value=many.peak_bytes / _MEGABYTE, unit="MB", at_most=250)
    growth = many.peak_bytes / few.peak_bytes
    yield Measure(name=f"drain, peak memory of {_MANY} / of {_FEW}", value=growth, unit="ratio", at_most=1.1)


async def _ways(round_trip: float) -> _Ways:
    async with _namespaces(round_trip) as (primary, secondary):
        await _fill(secondary, _NAIVELY, body=200, queues=1)
        naive = await _naively(primary, secondary)
        ours: list[float] = []
        receive: list[float] = []
        send: list[float] = []
        for _ in range(_TURNS):
            await _fill(secondary, _MOVED, body=200)
            receive.append(await _bare_receive(secondary, _MOVED))
            await _fill(secondary, _MOVED, body=200)
            ours.append(await _drained(primary, secondary, _MOVED, ordering="none"))
            send.append(await _bare_send(primary))
        # The same number of messages each time: the rate of all turns together is the harmonic mean.
        return _Ways(ours=harmonic_mean(ours), naive=naive, receive=harmonic_mean(receive), send=harmonic_mean(send))


async def _drained(primary: Endpoint, secondary: Endpoint, moved: int, *, ordering: str) -> float:
    options = PairOptions(backlog_queue_count=_QUEUES, ordering=ordering)
    async with NamespacePair(primary, secondary, options) as pair:
        began = perf_counter()
        report = await pair.syphon().drain()
        rate = report.moved_total / (perf_counter() - began)
    assert report.moved_total == moved
    return rate


async def _in_order() -> list[Measure]:
    """What it costs to keep the order of sessions: one link a queue, and a look at its head for each hand."""
    async with _namespaces(0) as (primary, secondary):
        rates: dict[str, float] = {}
        for ordering in ("none", "session"):
            await _fill(secondary, _MOVED, body=200)
            rates[ordering] = await _drained(primary, secondary, _MOVED, ordering=ordering)
    name = "drain on loopback in session order"
    return [
        Measure(name=f"{name}, ours", value=rates["session"], unit=_UNIT),
        Measure(name=f"{name} / without", value=rates["session"] / rates["none"], unit="ratio"),
    ]


@asynccontextmanager
async def _namespaces(round_trip: float) -> AsyncIterator[tuple[Endpoint, Endpoint]]:
    """Both namespaces, so far away, with their queues."""
    with ExitStack() as stack:
        ends: list[Endpoint] = []
        for name, queues in (("contoso", (QUEUE,)), ("contoso-dr", backlog_queues("contoso", _QUEUES))):
            served = stack.enter_context(EmulatorProcess([name]))[name]
            near = _endpoint(served, served.connection_string)
            async with ServiceBusAdministration(near) as administration:
                for queue in queues:
                    await administration.create_queue(queue, BACKLOG_QUEUE)
            text = served.connection_string
            if round_trip:
                port = stack.enter_context(delayed(served.amqp_port, round_trip_ms=round_trip))
                text = text.replace(f":{served.amqp_port};", f":{port};")
            ends.append(_endpoint(served, text))
        yield ends[0], ends[1]


def _endpoint(served: ServedNamespace, text: str) -> Endpoint:
    return Endpoint.from_connection_string(
        text, namespace=served.name, administration=f"{served.host}:{served.admin_port}"
    )


def _client(endpoint: Endpoint) -> ServiceBusClient:
    assert endpoint.connection_string is not None
    return ServiceBusClient.from_connection_string(endpoint.connection_string.reveal())


async def _fill(secondary: Endpoint, count: int, *, body: int, queues: int = _QUEUES) -> None:
    """Put ``count`` diverted messages into the backlog, evenly."""
    async with _client(secondary) as client:
        for number, queue in enumerate(backlog_queues("contoso", queues)):
            async with client.get_queue_sender(queue) as sender:
                batch = await sender.create_message_batch()
                limit = batch.max_size_in_bytes
                for wire in _packed(limit, range(number, count, queues), body=body):
                    await sender.send_messages(wire.wire)


def _packed(limit: int, numbers: Sequence[int], *, body: int) -> Iterator[WireBatch]:
    batch = WireBatch(limit)
    for number in numbers:
        message = ServiceBusMessage(b"x" * body, message_id=f"m{number}")
        copied = wrap(message.raw_amqp_message, entity=QUEUE)
        if not batch.try_add(copied):
            yield batch
            batch = WireBatch(limit)
            batch.try_add(copied)
    yield batch


async def _naively(primary: Endpoint, secondary: Endpoint) -> float:
    """Receive, send, complete, one by one."""
    async with (
        _client(primary) as there,
        _client(secondary) as here,
        there.get_queue_sender(QUEUE) as sender,
        here.get_queue_receiver(backlog_queues("contoso", 1)[0]) as receiver,
    ):
        began = perf_counter()
        for _ in range(_NAIVELY):
            [message] = await receiver.receive_messages(max_message_count=1, max_wait_time=5)
            await sender.send_messages(ServiceBusMessage(b"".join(message.body), message_id=message.message_id))
            await receiver.complete_message(message)
        return _NAIVELY / (perf_counter() - began)


async def _bare_receive(secondary: Endpoint, moved: int) -> float:
    """Receive from all queues at once and complete, so many at a time; the best that public calls gave."""
    async with _client(secondary) as client:
        began = perf_counter()
        await asyncio.gather(*(_empty(client, queue, moved // _QUEUES) for queue in backlog_queues("contoso", _QUEUES)))
        return moved / (perf_counter() - began)


async def _empty(client: ServiceBusClient, queue: str, left: int) -> None:
    slots = asyncio.Semaphore(_IN_FLIGHT)

    async def complete(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> None:
        async with slots:
            await receiver.complete_message(message)

    async with client.get_queue_receiver(queue) as receiver:
        while left:
            received = await receiver.receive_messages(max_message_count=min(_HAND, left), max_wait_time=5)
            await asyncio.gather(*(complete(receiver, message) for message in received))
            left -= len(received)


async def _bare_send(primary: Endpoint) -> float:
    async with _client(primary) as client, client.get_queue_sender(QUEUE) as sender:
        began = perf_counter()
        batch = await sender.create_message_batch()
        for number in range(_MOVED):
            message = ServiceBusMessage(b"x" * 200, message_id=f"n{number}")
            try:
                batch.add_message(message)
            except ValueError:
                await sender.send_messages(batch)
                batch = await sender.create_message_batch()
                batch.add_message(message)
        await sender.send_messages(batch)
        return _MOVED / (perf_counter() - began)


async def _size(count: int) -> _Drained:
    """Drain ``count`` messages of 1 KB in a process of its own, which tells its peak."""
    async with _namespaces(0) as (primary, secondary):
        await _fill(secondary, count, body=_BODY_BYTES)
        texts = [end.connection_string for end in (primary, secondary)]
        settings = [text.reveal() for text in texts if text is not None]
        command = [sys.executable, "-m", "tests.benchmarks.drain_process", *settings, str(_QUEUES)]
        ended = await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, text=True)
        told = json.loads(ended.stdout.splitlines()[-1])
        assert told["moved"] == count
        return _Drained(seconds=told["seconds"], peak_bytes=told["peak_bytes"])
