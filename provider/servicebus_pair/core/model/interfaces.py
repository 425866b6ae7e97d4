"""Protocols that callers may implement (clock, health store), with default implementations."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from servicebus_pair.core.model.health_state import EntityHealth


class Clock(Protocol):
    """Source of time."""

    def now(self) -> float:
        """Seconds since the Unix epoch; never runs backwards."""

    async def sleep(self, seconds: float) -> None:
        """Wait; 0 seconds or fewer let other tasks run."""


class SystemClock:
    """System time read once and advanced by the monotonic clock.

    Setting the system clock during an outage therefore does not change the measured length of the outage.
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        return self._offset + time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


async def sleep_until_set(clock: Clock, seconds: float, *events: asyncio.Event) -> None:
    """Sleep, but not beyond the moment at which one of ``events`` is set."""
    waits = [asyncio.ensure_future(each) for each in (clock.sleep(seconds), *(event.wait() for event in events))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()


class HealthStore(Protocol):
    """Store of entity health shared with other processes.

    The stored values are soft state: a ping corrects a wrong "failed over", and a failing send corrects a wrong
    "healthy". With ``ordering="session"`` they are not: the value of a ``save`` must be visible to all processes
    within half of ``health_refresh`` from its start, and of several values the last one counts for all.

    The methods are called one at a time, in the pair's event loop, and must not block it.
    """

    async def load(self, entity: str) -> EntityHealth | None:
        """Return the stored health of ``entity``, or ``None``."""

    async def save(self, entity: str, health: EntityHealth) -> None:
        """Store the health of ``entity``; the last writer wins."""


class BlockingHealthStore(Protocol):
    """A :class:`HealthStore` whose methods may block: they run one at a time in a daemon thread of their own.

    A method that never returns costs that thread; it holds up neither other threads nor the exit of the process.
    """

    def load(self, entity: str) -> EntityHealth | None:
        """Return the stored health of ``entity``, or ``None``."""

    def save(self, entity: str, health: EntityHealth) -> None:
        """Store the health of ``entity``; the last writer wins."""


class InMemoryHealthStore:
    """Health store in memory, for one process.

    :param known: initial health, by entity path.
    :ivar known: current health, by case-folded entity path.
    """

    def __init__(self, known: dict[str, EntityHealth] | None = None) -> None:
        self.known = {entity.casefold(): health for entity, health in ({} if known is None else known).items()}

    async def load(self, entity: str) -> EntityHealth | None:
        """Return the stored health of ``entity``, or ``None``."""
        return self.known.get(entity.casefold())

    async def save(self, entity: str, health: EntityHealth) -> None:
        """Store the health of ``entity``."""
        self.known[entity.casefold()] = health
