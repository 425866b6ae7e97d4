"""How many links one syphon uses to send to a destination.

A link sends one batch after another, each after the response to the previous one: 100 messages in 25 ms where the
service is 20 ms away, at most 4,000 a second however many queues are drained. So a batch that finds every link to
its destination busy opens another, up to a few per destination and a few over all destinations: a backlog for a
hundred destinations should open about a hundred links, not three hundred. A link that sends encoded batches sends
several at a time; there an index stands for a batch on its way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

_EXTRA_LINKS: Final = 2


@dataclass(slots=True)
class _DestinationLinks:
    """The links to one destination, by index; the first one always exists."""

    free: list[int] = field(default_factory=lambda: [0])
    count: int = 1
    available: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))

    def add(self) -> None:
        self.free.append(self.count)
        self.count += 1
        self.available.release()


class LinkPool:
    """Assigns link indexes to senders, by path without regard to case; first come, first served.

    :param max_per_destination: most links to one destination; 1 keeps messages to it in order.
        Beyond the first one of each destination there are at most twice as many over all destinations.
    """

    def __init__(self, max_per_destination: int) -> None:
        self._max_per_destination = max_per_destination
        self._remaining_extra = _EXTRA_LINKS * max_per_destination
        self._destinations: dict[str, _DestinationLinks] = {}

    @asynccontextmanager
    async def acquire(self, entity: str) -> AsyncIterator[int]:
        """Wait for a link to ``entity`` and yield its index: the lowest free one, so that few links are used."""
        links = self._destinations.setdefault(entity.casefold(), _DestinationLinks())
        if not links.free and links.count < self._max_per_destination and self._remaining_extra > 0:
            self._remaining_extra -= 1
            links.add()
        async with links.available:
            links.free.sort()
            index = links.free.pop(0)
            try:
                yield index
            finally:
                links.free.append(index)
