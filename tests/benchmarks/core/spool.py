"""The cost of a spooled send compared with a diverted one, with an fsync for each batch; and of emptying the spool."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from math import inf
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import psutil
from azure.servicebus import ServiceBusMessage

from servicebus_emulator.testing.process import EmulatorProcess
from servicebus_pair.core import NamespacePair, PairOptions
from servicebus_pair.core.model.interfaces import SystemClock
from servicebus_pair.core.send.queue_selector import BacklogHealth
from servicebus_pair.core.send.sender import PairSender
from tests.benchmarks.core.baseline import QUEUE, endpoint
from tests.benchmarks.measure import Measure
from tests.benchmarks.timings import Timings, rotated

_BODY = b"x" * 200
_MESSAGES = 1_500
_ROUNDS = 31
_MEMORY_ROUNDS = 100
_MEGABYTE = 2**20


def measures() -> Iterator[Measure]:
    """Measure spooled sends, their memory, and how fast the spool is emptied."""
    with EmulatorProcess(["contoso", "contoso-dr"]) as process, TemporaryDirectory() as folder:
        process["contoso"].create_queue(QUEUE)
        yield from asyncio.run(_measure(process, folder))


async def _measure(process: EmulatorProcess, folder: str) -> list[Measure]:
    endpoints = endpoint(process["contoso"]), endpoint(process["contoso-dr"])
    timings = {"diverted": Timings(), "spooled": Timings()}
    async with AsyncExitStack() as stack:
        pair = await stack.enter_async_context(
            NamespacePair(*endpoints, PairOptions(backlog_queue_count=1, spool=folder))
        )
        await pair.provision()
        await pair.fail_over(QUEUE, reason="benchmark", hold=timedelta(hours=1))
        assert pair._shared is not None
        # As after a failed search for a backlog queue, for good.
        down = BacklogHealth(clock=SystemClock(), retry_seconds=inf)
        down.failed()
        spooling = PairSender(QUEUE, replace(pair._shared, backlog_health=down))
        senders = {
            "diverted": await stack.enter_async_context(pair.sender(QUEUE)),
            "spooled": await stack.enter_async_context(spooling),
        }
        for sender in senders.values():
            await sender.send(_messages(10))
        for number in range(_ROUNDS):
            for name, sender in rotated(list(senders.items()), number):
                started = perf_counter()
                result = await sender.send(_messages(_MESSAGES))
                timings[name].elapsed.append((perf_counter() - started) / _MESSAGES)
                assert getattr(result, name) == _MESSAGES
        memory = [await _memory_after_send(spooling) for _ in range(_MEMORY_ROUNDS)]
        await pair.mark_healthy(QUEUE)
        started = perf_counter()
        report = await pair.empty_spool()
        emptied = report.moved_total / (perf_counter() - started)
        assert report.left == 0
    ratio = timings["spooled"].relative_to(timings["diverted"])
    # From the first third on, so that what is allocated once does not count.
    growth = median(memory[-10:]) - median(memory[_MEMORY_ROUNDS // 3 :][:10])
    return [
        *(Measure(name=f"batched, {name}", value=each.rate, unit="msg/s") for name, each in timings.items()),
        Measure(name="spooled batched send / diverted", value=ratio, unit="ratio", at_least=0.5),
        Measure(name="memory that 100,000 spooled messages add", value=growth, unit="MB", at_most=5.0),
        Measure(name="emptying the spool to the primary", value=emptied, unit="msg/s"),
    ]


async def _memory_after_send(sender: PairSender) -> float:
    await sender.send(_messages(_MESSAGES))
    return float(psutil.Process().memory_info().rss / _MEGABYTE)


def _messages(count: int) -> Iterator[ServiceBusMessage]:
    return (ServiceBusMessage(_BODY, message_id=f"m{number}") for number in range(count))
