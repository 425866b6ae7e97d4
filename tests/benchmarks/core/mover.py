"""The syphon that relays encoded messages, compared with itself when it decodes them, as it did before.

The syphon runs in a process of its own, with ledger, meter and events on, as each namespace does. A drain is timed
until it has found the backlog empty, links included. Both ways alternate in one run, so that other load on the machine
affects both. A round-trip time is added by the services to what they answer.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from typing import Any, Final

from servicebus_pair.core import NamespacePair, PairOptions
from servicebus_pair.core.protocol.amqp_message import new_message
from servicebus_pair.core.sdk._private.capabilities import PATH_VARIABLE
from tests.benchmarks.core.backlog import QUEUES, Namespaces, fill, namespaces
from tests.benchmarks.core.baseline import QUEUE
from tests.benchmarks.measure import Measure
from tests.benchmarks.timings import rotated

RELAY: Final = "relay"
DECODE: Final = "decode"
"""Values of :data:`PATH_VARIABLE`: messages are relayed as they are encoded, or decoded one by one."""
_MESSAGES: Final = 60_000
_MANY_MESSAGES: Final = 200_000
"""As many as the memory is measured with: what opening links and the last batches take counts less than in a second."""
_DECODED_MESSAGES: Final = 10_000
_BATCH_SIZES: Final = (PairOptions().syphon_batch_size, 250, 1000)
_ORDERED_MESSAGES: Final = 40_000
_SESSIONS: Final = 100
_ROUNDS: Final = 3
_LONG_ROUNDS: Final = 2
_ROUND_TRIPS_MS: Final = (0, 5, 20)
_KILOBYTE: Final = 1024
_UNIT: Final = "msg/s"
_CPU_UNIT: Final = "us per message"


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainResult:
    """What a drain took in the syphon's process. Times are seconds."""

    relayed: bool
    moved: int
    seconds: float
    cpu_seconds: float
    peak_bytes: float

    @property
    def rate(self) -> float:
        """Messages per second."""
        return self.moved / self.seconds

    @property
    def cpu(self) -> float:
        """Processor time per message, in microseconds."""
        return self.cpu_seconds / self.moved * 1e6


async def run_mover(
    served: Namespaces,
    *,
    count: int,
    path: str = RELAY,
    ordering: str = "none",
    batch_size: int = PairOptions().syphon_batch_size,
) -> DrainResult:
    """Drain a backlog of ``count`` messages in a process of its own."""
    texts = [each.connection_string for each in (served.primary, served.secondary)]
    settings = [text.reveal() for text in texts if text is not None]
    command = [sys.executable, "-m", "tests.benchmarks.core.drain_process", *settings, str(QUEUES), ordering]
    command.append(str(batch_size))
    environment = {**os.environ, PATH_VARIABLE: path}
    finished = await asyncio.to_thread(
        subprocess.run, command, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    result = DrainResult(**json.loads(finished.stdout.splitlines()[-1]))
    # The name of a way that is not known would measure the usual one.
    assert (result.moved, result.relayed) == (count, path == RELAY)
    return result


def measures() -> Iterator[Measure]:
    """Measure rate and processor time, for both sizes, with latency and in session order."""
    yield from asyncio.run(_both_ways())
    yield asyncio.run(_large_backlog())
    yield from asyncio.run(_large())
    yield from asyncio.run(_by_batch_size())
    yield from asyncio.run(_in_session_order())


async def _both_ways() -> list[Measure]:
    async with namespaces() as served:
        relayed: dict[int, list[DrainResult]] = {round_trip: [] for round_trip in _ROUND_TRIPS_MS}
        decoded: list[DrainResult] = []
        for number in range(_ROUNDS):
            decoded.append(await _filled_and_drained(served, _DECODED_MESSAGES, path=DECODE))
            for round_trip, results in rotated(list(relayed.items()), number):
                results.append(await _filled_and_drained(served, _MESSAGES, round_trip=round_trip / 1000))
    local = relayed[0]
    ratio = _ratio(local, decoded)
    measures = [
        Measure(name="drain of 200 B, messages decoded", value=_rate(decoded), unit=_UNIT),
        Measure(name="drain of 200 B, messages decoded, CPU time", value=_cpu(decoded), unit=_CPU_UNIT),
        Measure(name="drain of 200 B, relayed", value=_rate(local), unit=_UNIT, at_least=20_000),
        Measure(name="drain of 200 B, relayed, CPU time", value=_cpu(local), unit=_CPU_UNIT, at_most=45),
        Measure(name="drain of 200 B, relayed / decoded", value=ratio, unit="ratio", at_least=7),
    ]
    for round_trip, goal in ((5, 0.8), (20, 0.5)):
        value, name = _ratio(relayed[round_trip], local), f"drain at {round_trip} ms / on loopback, relayed"
        measures.append(Measure(name=name, value=value, unit="ratio", at_least=goal))
    return measures


async def _large_backlog() -> Measure:
    results: dict[int, list[DrainResult]] = {0: [], 5: []}
    for number in range(_LONG_ROUNDS):
        async with namespaces() as served:
            for round_trip, found in rotated(list(results.items()), number):
                found.append(await _filled_and_drained(served, _MANY_MESSAGES, round_trip=round_trip / 1000))
    name = f"drain of {_MANY_MESSAGES} at 5 ms / on loopback, relayed"
    return Measure(name=name, value=_ratio(results[5], results[0]), unit="ratio")


async def _large() -> list[Measure]:
    async with namespaces() as served:
        count = _MESSAGES // 2
        results = [await _filled_and_drained(served, count, body_bytes=_KILOBYTE) for _ in range(_ROUNDS)]
    return [
        Measure(name="drain of 1 KB, relayed", value=_rate(results), unit=_UNIT),
        Measure(name="drain of 1 KB, relayed, CPU time", value=_cpu(results), unit=_CPU_UNIT, at_most=60),
    ]


async def _by_batch_size() -> list[Measure]:
    """Compare the default of ``syphon_batch_size`` with others, at 5 ms; each begins one round."""
    results: dict[int, list[DrainResult]] = {each: [] for each in _BATCH_SIZES}
    async with namespaces() as served:
        for number in range(_ROUNDS):
            for batch_size, found in rotated(list(results.items()), number):
                found.append(await _filled_and_drained(served, _MESSAGES // 2, round_trip=0.005, batch_size=batch_size))
    usual = results.pop(_BATCH_SIZES[0])
    measures: list[Measure] = []
    for batch_size, found in results.items():
        name = f"drain of 200 B at 5 ms, batches of {batch_size} / of the default"
        measures.append(Measure(name=f"{name}, rate", value=_ratio(found, usual), unit="ratio"))
        measures.append(Measure(name=f"{name}, CPU time", value=_cpu(found) / _cpu(usual), unit="ratio"))
    return measures


async def _in_session_order() -> list[Measure]:
    async with namespaces() as served:
        ordered: list[DrainResult] = []
        unordered: list[DrainResult] = []
        for _ in range(_ROUNDS):
            unordered.append(await _filled_and_drained(served, _ORDERED_MESSAGES))
            await _divert_in_order(served, _ORDERED_MESSAGES)
            ordered.append(await run_mover(served, count=_ORDERED_MESSAGES, ordering="session"))
    name = "drain in session order"
    return [
        Measure(name=f"{name}, relayed", value=_rate(ordered), unit=_UNIT),
        Measure(name=f"{name} / without, relayed", value=_ratio(ordered, unordered), unit="ratio", at_least=0.6),
    ]


async def _filled_and_drained(
    served: Namespaces, count: int, *, body_bytes: int = 200, round_trip: float = 0.0, **more: Any
) -> DrainResult:
    served.delay(0)
    await fill(served.secondary, count, body_bytes=body_bytes)
    served.delay(round_trip)
    return await run_mover(served, count=count, **more)


async def _divert_in_order(served: Namespaces, count: int) -> None:
    """Put messages of many sessions into the backlog queues that keep their order."""
    options = PairOptions(backlog_queue_count=QUEUES, ordering="session")
    async with NamespacePair(served.primary, served.secondary, options) as pair:
        await pair.provision()
        await pair.fail_over(QUEUE, reason="benchmark", hold=timedelta(hours=1))
        async with pair.sender(QUEUE) as sender:
            result = await sender.send(
                new_message(b"x" * 200, message_id=f"m{number}", session_id=f"s{number % _SESSIONS}")
                for number in range(count)
            )
    assert result.diverted == count


def _rate(results: list[DrainResult]) -> float:
    return median(result.rate for result in results)


def _cpu(results: list[DrainResult]) -> float:
    return median(result.cpu for result in results)


def _ratio(ours: list[DrainResult], theirs: list[DrainResult]) -> float:
    """Return the ratio of two rates: the median over the rounds."""
    return median(our.rate / their.rate for our, their in zip(ours, theirs, strict=True))
