"""The group ``peers``: the syphon beside RabbitMQ's Shovel, which does the same for RabbitMQ.

Both move persistent messages of the same size, confirmed by the destination before they are settled at the source, over
TCP on loopback. The Shovel (prefetch 1000) has both ends in one server and writes to disk; it empties one queue, or ten
with a Shovel for each, whichever is faster. The syphon runs in a process of its own and empties ten queues of one
namespace in another process into a queue of a third, in memory and on disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from statistics import median
from typing import Final

from tests.benchmarks.core.backlog import Namespaces, fill, namespaces
from tests.benchmarks.core.mover import run_mover
from tests.benchmarks.measure import Measure
from tests.benchmarks.peers.debian import Unpacked, UnpackError, unpack_rabbitmq
from tests.benchmarks.peers.rabbitmq import RabbitMQ, serve

_FOLDER: Final = Path(__file__).parents[3] / ".bench" / "rabbitmq"
_MESSAGES: Final = 30_000
_SHOVELS: Final = (1, 10)
_SIZES: Final = {"200 B": 200, "1 KB": 1024}
_ROUNDS: Final = 2
_UNIT: Final = "msg/s"


def measures() -> Iterator[Measure]:
    """Measure both in turns; nothing where RabbitMQ cannot be had."""
    try:
        unpacked = unpack_rabbitmq(_FOLDER)
    except UnpackError as error:
        print(f"  skipped, RabbitMQ cannot be had from Debian's archive here: {error}", flush=True)  # noqa: T201
        return
    with asyncio.Runner() as runner:
        found = _compare(unpacked)
        while (measure := runner.run(_next(found))) is not None:
            yield measure


async def _next(found: AsyncIterator[Measure]) -> Measure | None:
    return await anext(found, None)


async def _compare(unpacked: Unpacked) -> AsyncIterator[Measure]:
    with serve(unpacked) as peer:
        async with namespaces() as in_memory, namespaces(durable=True) as on_disk:
            for size, body_bytes in _SIZES.items():
                rates: dict[str, list[float]] = {"Shovel": [], "in memory": [], "with --data": []}
                for _ in range(_ROUNDS):
                    rates["Shovel"].append(await asyncio.to_thread(_shovel, peer, body_bytes))
                    rates["in memory"].append(await _drain(in_memory, body_bytes))
                    rates["with --data"].append(await _drain(on_disk, body_bytes))
                for measure in _measures_of(size, rates, version=unpacked.version):
                    yield measure


def _shovel(peer: RabbitMQ, body_bytes: int) -> float:
    """Return the messages per second of the faster arrangement."""
    rates: list[float] = []
    for count in _SHOVELS:
        queues = [f"source-{number}-of-{count}" for number in range(count)]
        peer.fill(queues, _MESSAGES, body_bytes=body_bytes)
        peer.await_idle()
        rates.append(peer.drain(queues, _MESSAGES))
    peer.await_idle()
    return max(rates)


async def _drain(served: Namespaces, body_bytes: int) -> float:
    await fill(served.secondary, _MESSAGES, body_bytes=body_bytes)
    return (await run_mover(served, count=_MESSAGES)).rate


def _measures_of(size: str, rates: dict[str, list[float]], *, version: str) -> Iterator[Measure]:
    theirs = rates.pop("Shovel")
    yield Measure(name=f"Shovel of RabbitMQ {version}, {size}", value=median(theirs), unit=_UNIT)
    for where, goal in (("in memory", 1.5), ("with --data", 1.0)):
        ours = rates[where]
        yield Measure(name=f"drain {where}, {size}", value=median(ours), unit=_UNIT)
        ratio = median(our / their for our, their in zip(ours, theirs, strict=True))
        yield Measure(name=f"drain {where} / Shovel, {size}", value=ratio, unit="ratio", at_least=goal)
