"""A health store whose writes become visible late, to each reader at another time."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from random import Random

from servicebus_pair.core import EntityHealth


@dataclass(frozen=True)
class _Version:
    health: EntityHealth
    began: float
    lags: dict[str, float]


class LaggingStore:
    """The last write wins, in the order in which writes arrive; each is visible ``lag`` seconds after its start.

    :param lag: seconds until a write is visible to every reader, from the start of the save.
    :param latency: seconds that a load takes, and at most half of which a save takes to arrive.
    """

    def __init__(self, random: Random, *, lag: float, latency: float) -> None:
        self._random = random
        self._lag = lag
        self._latency = latency
        self._versions: list[_Version] = []
        self.fails = False

    def of(self, reader: str) -> _Reader:
        """Return the store as one process sees it."""
        return _Reader(self, reader)

    async def load(self, reader: str) -> EntityHealth | None:
        self._raise_if_failing()
        now = asyncio.get_running_loop().time()
        visible = None
        for version in self._versions:
            lag = version.lags.setdefault(reader, self._random.uniform(0, self._lag))
            if version.began + lag <= now:
                visible = version.health
        await asyncio.sleep(self._random.uniform(0, self._latency))
        self._raise_if_failing()
        return visible

    async def save(self, reader: str, health: EntityHealth) -> None:
        self._raise_if_failing()
        began = asyncio.get_running_loop().time()
        await asyncio.sleep(self._random.uniform(0, min(self._latency, self._lag) / 2))
        self._raise_if_failing()
        arrived = asyncio.get_running_loop().time() - began
        self._versions.append(_Version(health, began, {reader: max(arrived, self._random.uniform(0, self._lag))}))

    @property
    def newest(self) -> EntityHealth | None:
        """The health that all readers will see."""
        return self._versions[-1].health if self._versions else None

    def _raise_if_failing(self) -> None:
        if self.fails:
            raise ConnectionError("the store is down")


class _Reader:
    def __init__(self, store: LaggingStore, reader: str) -> None:
        self._store = store
        self._reader = reader

    async def load(self, _: str) -> EntityHealth | None:
        return await self._store.load(self._reader)

    async def save(self, _: str, health: EntityHealth) -> None:
        await self._store.save(self._reader, health)
