"""What the core needs from outside, as protocols, with the plain forms of each."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from servicebus_pair.core.health import EntityHealth

__all__ = ["Clock", "HealthStore", "InMemoryHealthStore", "SystemClock"]


class Clock(Protocol):
    """Time as the core sees it."""

    def now(self) -> float:
        """Seconds since the Unix epoch; never runs backwards."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The machine's time, taken once and carried on by the monotonic clock.

    A clock that is set during an outage does not shorten or lengthen it.
    """

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        return self._offset + time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class HealthStore(Protocol):
    """Health shared with other processes.

    Soft state: a wrong value heals itself, since a ping corrects "failed over" and a failing send
    corrects "healthy".
    """

    async def load(self, entity: str) -> EntityHealth | None:
        """Return what is known of ``entity``, or ``None``."""

    async def save(self, entity: str, health: EntityHealth) -> None:
        """Share the health of ``entity``; the last writer wins."""


class InMemoryHealthStore:
    """Health shared within one process, or carried in and out of one by its owner.

    :param known: what is known at the start, by entity path.
    :ivar known: what is known now, by folded entity path.
    """

    def __init__(self, known: dict[str, EntityHealth] | None = None) -> None:
        self.known = {entity.casefold(): health for entity, health in ({} if known is None else known).items()}

    async def load(self, entity: str) -> EntityHealth | None:
        """Return what is known of ``entity``, or ``None``."""
        return self.known.get(entity.casefold())

    async def save(self, entity: str, health: EntityHealth) -> None:
        """Keep the health of ``entity``."""
        self.known[entity.casefold()] = health
