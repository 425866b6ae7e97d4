"""How many links one syphon uses to send to a destination.

A link sends one batch after another, each after the response to the previous one: 100 messages in 25 ms where the
service is 20 ms away, at most 4,000 a second however many queues are drained. So a batch that finds every link to
its destination busy opens another, up to a few per destination and a few over all destinations: a backlog for a
hundred destinations should open about a hundred links, not three hundred.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

__all__ = ["LinkPool", "max_links"]

_MAX_PER_DESTINATION: Final = 3
_MAX_EXTRA_LINKS: Final = 6


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
    :param max_extra_links: most links over all destinations beyond the first one of each.
    """

    def __init__(
        self, max_per_destination: int = _MAX_PER_DESTINATION, *, max_extra_links: int = _MAX_EXTRA_LINKS
    ) -> None:
        self._max_per_destination = max_per_destination
        self._remaining_extra = max_extra_links
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


def max_links(destinations: int) -> int:
    """Return how many links one syphon opens at most to so many destinations; each sends one batch at a time."""
    return min(destinations * _MAX_PER_DESTINATION, destinations + _MAX_EXTRA_LINKS)
