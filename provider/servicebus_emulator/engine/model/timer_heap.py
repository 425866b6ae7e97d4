"""Timers by due time."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

_MIN_STALE_ENTRIES = 1024


class TimerHeap(Generic[Key]):
    """Keys with a due time in milliseconds since 1970; each key has at most one.

    Many keys share a due time, so the heap holds distinct times only and setting or discarding a key costs a
    dictionary access. A discarded or replaced entry stays until its time comes, or until stale entries outnumber
    current ones.

    :ivar not_before: no key is due before this time. An attribute, because it is read several times per message.
    """

    __slots__ = ("_due", "_entries", "_keys_by_time", "_times", "not_before")

    def __init__(self) -> None:
        self._due: dict[Key, int] = {}
        # In order of insertion, including stale keys.
        self._keys_by_time: dict[int, list[Key]] = {}
        self._times: list[int] = []
        self._entries = 0
        self.not_before: float = inf

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: Key, due: int) -> None:
        """Set the due time of `key`, replacing any earlier one."""
        if self._due.get(key) != due:
            self.set_all((key,), due)

    def set_all(self, keys: Sequence[Key], due: int) -> None:
        """Set the due time of several distinct keys, replacing any earlier ones."""
        if len(keys) == 1:
            self._due[keys[0]] = due
        else:
            self._due.update(dict.fromkeys(keys, due))
        self._insert(keys, due)
        if self._entries > 2 * len(self._due) + _MIN_STALE_ENTRIES:
            self._rebuild()

    def discard(self, key: Key) -> None:
        """Remove `key` if it is present."""
        self._due.pop(key, None)

    def discard_all(self, keys: Iterable[Key]) -> None:
        """Remove those of `keys` that are present."""
        due = self._due
        if len(due) > 0:
            for key in keys:
                due.pop(key, None)

    def next_due(self) -> int | None:
        """Return the earliest due time, or None when there is no key."""
        while self._times:
            due = self._times[0]
            keys = self._keys_by_time[due]
            while keys and self._due.get(keys[-1]) != due:
                keys.pop()
                self._entries -= 1
            if keys:
                return due
            del self._keys_by_time[heappop(self._times)]
            self._update_not_before()
        return None

    def pop_due(self, now: int) -> list[Key]:
        """Remove and return the keys due at `now` or before, earliest first."""
        popped: list[Key] = []
        if self.not_before > now:
            return popped
        while self._times and self._times[0] <= now:
            due = heappop(self._times)
            keys = self._keys_by_time.pop(due)
            self._entries -= len(keys)
            for key in keys:
                # Skips stale entries and duplicates.
                if self._due.get(key) == due:
                    del self._due[key]
                    popped.append(key)
        self._update_not_before()
        return popped

    def _insert(self, keys: Sequence[Key], due: int) -> None:
        existing = self._keys_by_time.get(due)
        if existing is None:
            self._keys_by_time[due] = list(keys)
            heappush(self._times, due)
            self._update_not_before()
        else:
            existing.extend(keys)
        self._entries += len(keys)

    def _rebuild(self) -> None:
        self._keys_by_time = {}
        for key, due in self._due.items():
            self._keys_by_time.setdefault(due, []).append(key)
        self._times = list(self._keys_by_time)
        heapify(self._times)
        self._update_not_before()
        self._entries = len(self._due)

    def _update_not_before(self) -> None:
        self.not_before = self._times[0] if self._times else inf
