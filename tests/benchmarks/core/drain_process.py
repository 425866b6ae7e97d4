"""Drains in a separate process, to measure its peak memory; prints the result as a line of JSON."""

from __future__ import annotations

import asyncio
import json
import resource
import sys
from time import perf_counter

from servicebus_pair.core import Endpoint, NamespacePair, PairOptions


async def _drain(primary: str, secondary: str, queues: int) -> None:
    pair = NamespacePair(
        Endpoint.from_connection_string(primary, namespace="contoso"),
        Endpoint.from_connection_string(secondary, namespace="contoso-dr"),
        PairOptions(backlog_queue_count=queues),
    )
    async with pair:
        started = perf_counter()
        report = await pair.syphon().drain()
        seconds = perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"moved": report.moved_total, "seconds": seconds, "peak_bytes": peak}))  # noqa: T201 - the result


if __name__ == "__main__":
    asyncio.run(_drain(sys.argv[1], sys.argv[2], int(sys.argv[3])))
