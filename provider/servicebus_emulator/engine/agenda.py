"""Keys by due time."""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

__all__ = ["Agenda"]

Key = TypeVar("Key", bound=Hashable)

_SLACK = 1024


class Agenda(Generic[Key]):
    """Which keys are due when; each key at most once.

    Setting and discarding cost a dictionary access: what is no longer valid stays in the heap until
    it surfaces, or until more than half of the heap is such.
    """

    __slots__ = ("_due", "_heap", "_order")

    def __init__(self) -> None:
        self._due: dict[Key, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, Key]] = []
        # Ties are broken by order of entry, so that keys need not be comparable.
        self._order = 0

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: Key, due: int) -> None:
        """Make `key` due at `due` (milliseconds since 1970), instead of any earlier setting."""
        self._order += 1
        self._due[key] = (due, self._order)
        heappush(self._heap, (due, self._order, key))
        if len(self._heap) > 2 * len(self._due) + _SLACK:
            self._heap = [(at, order, each) for each, (at, order) in self._due.items()]
            heapify(self._heap)

    def discard(self, key: Key) -> None:
        """Forget `key`, if it is known."""
        self._due.pop(key, None)

    def next_due(self) -> int | None:
        """Return when the next key is due, or None when there is none."""
        heap = self._heap
        while heap:
            due, order, key = heap[0]
            if self._due.get(key) == (due, order):
                return due
            heappop(heap)
        return None

    def pop_due(self, now: int) -> list[Key]:
        """Remove and return the keys due at `now` or before, earliest first."""
        keys: list[Key] = []
        due = self.next_due()
        while due is not None and due <= now:
            key = heappop(self._heap)[2]
            del self._due[key]
            keys.append(key)
            due = self.next_due()
        return keys
