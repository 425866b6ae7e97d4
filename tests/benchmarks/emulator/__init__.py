"""What the embedded Service Bus costs: CPU and memory of its process, read from outside, on messages of 200 bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from tests.benchmarks.emulator import capacity, flows, readiness
from tests.benchmarks.measure import Measure

__all__ = ["measures"]


def measures() -> Iterator[Measure]:
    """Yield the measures one by one."""
    yield from readiness.measures()
    yield from asyncio.run(flows.measures())
    yield from asyncio.run(capacity.measures())
