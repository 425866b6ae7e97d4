"""Drains in a process of its own, with ledger, meter and events on; prints what that took as a line of JSON."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from tempfile import TemporaryDirectory
from time import perf_counter

from servicebus_pair.core import Endpoint, Ledger, NamespacePair, PairOptions
from servicebus_pair.core.events import Event
from servicebus_pair.core.sdk._private.capabilities import relays


class _EventCounter:
    def __init__(self) -> None:
        self.count = 0

    def observe(self, event: Event) -> None:  # noqa: ARG002 - the port's
        self.count += 1


async def _drain(primary: str, secondary: str, *, queues: int, ordering: str, batch_size: int) -> dict[str, float]:
    counter = _EventCounter()
    with TemporaryDirectory() as folder, Ledger(folder, run="bench") as ledger:
        pair = NamespacePair(
            Endpoint.from_connection_string(primary, namespace="contoso"),
            Endpoint.from_connection_string(secondary, namespace="contoso-dr"),
            PairOptions(backlog_queue_count=queues, ordering=ordering, syphon_batch_size=batch_size),
            observers=[ledger, counter],
        )
        async with pair:
            before, started = _cpu_seconds(), perf_counter()
            report = await pair.syphon().drain()
            seconds, cpu_seconds = perf_counter() - started, _cpu_seconds() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    assert counter.count > 0
    return {
        "relayed": relays(),
        "moved": report.moved_total,
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "peak_bytes": peak,
    }


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    primary, secondary, queues, ordering, batch_size = sys.argv[1:]
    drain = _drain(primary, secondary, queues=int(queues), ordering=ordering, batch_size=int(batch_size))
    result = asyncio.run(drain)
    print(json.dumps(result))  # noqa: T201 - the result
