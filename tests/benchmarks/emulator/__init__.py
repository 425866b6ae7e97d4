"""CPU time and memory of an embedded Service Bus process, with messages of 200 bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from tests.benchmarks.emulator import capacity, message_cost, start_and_stop
from tests.benchmarks.measure import Measure


def measures() -> Iterator[Measure]:
    yield from start_and_stop.measures()
    yield from asyncio.run(message_cost.measures())
    yield from asyncio.run(capacity.measures())
