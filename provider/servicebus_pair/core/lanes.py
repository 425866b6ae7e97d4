"""How many hands of a syphon are on their way to one destination at a time.

Over one link batches go one after another, each after the answer to the last: 100 messages in 25 ms,
where the service is 20 ms away, and no more than 4,000 a second, however many queues are drained. So a hand
that finds every link to its destination busy gets one more, up to a few, and a few over all
destinations: a backlog for a hundred of them is to open a hundred links and not three.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Lanes", "most_lanes"]

_OF_ONE: Final = 3
_BEYOND_THE_FIRST: Final = 6


@dataclass(slots=True)
class _Way:
    """The lanes to one destination, of which one is there from the start."""

    free: list[int] = field(default_factory=lambda: [0])
    width: int = 1
    turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))

    def widen(self) -> None:
        self.free.append(self.width)
        self.width += 1
        self.turns.release()


class Lanes:
    """Hands out the lanes to destinations, by path without regard to case; first come, first served.

    :param of_one: most lanes to one destination; 1 keeps what is sent to it in order.
    :param beyond_the_first: most lanes over all destinations that are not the first of theirs.
    """

    def __init__(self, of_one: int = _OF_ONE, *, beyond_the_first: int = _BEYOND_THE_FIRST) -> None:
        self._of_one = of_one
        self._left = beyond_the_first
        self._ways: dict[str, _Way] = {}

    @asynccontextmanager
    async def turn(self, entity: str) -> AsyncIterator[int]:
        """Wait for a lane to ``entity`` and answer its number: the lowest that is free, so that few are used."""
        way = self._ways.setdefault(entity.casefold(), _Way())
        if not way.free and way.width < self._of_one and self._left > 0:
            self._left -= 1
            way.widen()
        async with way.turns:
            way.free.sort()
            number = way.free.pop(0)
            try:
                yield number
            finally:
                way.free.append(number)


def most_lanes(destinations: int) -> int:
    """Answer how many lanes one syphon has at most to so many destinations: so many batches are under way."""
    return min(destinations * _OF_ONE, destinations + _BEYOND_THE_FIRST)
