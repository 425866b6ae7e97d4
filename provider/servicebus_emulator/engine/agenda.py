"""Keys by due time."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from heapq import heapify, heappop, heappush
from math import inf
from typing import Generic, TypeVar

__all__ = ["Agenda"]

Key = TypeVar("Key", bound=Hashable)

_SLACK = 1024


class Agenda(Generic[Key]):
    """Which keys are due when; each key at most once.

    Setting and discarding cost a dictionary access, since many keys share their due time: what is no longer
    valid stays where it was until its time comes, or until more than half of all entries are such.

    :ivar horizon: no key is due before this. An attribute, because it is looked at several times per message.
    """

    __slots__ = ("_at", "_due", "_entries", "_times", "horizon")

    def __init__(self) -> None:
        self._due: dict[Key, int] = {}
        # The keys that are, or were, due at a time, in order of entry.
        self._at: dict[int, list[Key]] = {}
        self._times: list[int] = []
        self._entries = 0
        self.horizon: float = inf

    def __len__(self) -> int:
        return len(self._due)

    def set(self, key: Key, due: int) -> None:
        """Make `key` due at `due` (milliseconds since 1970), instead of any earlier setting."""
        if self._due.get(key) != due:
            self.set_all((key,), due)

    def set_all(self, keys: Sequence[Key], due: int) -> None:
        """Make each of several different keys due at `due`, instead of any earlier setting."""
        self._due.update(dict.fromkeys(keys, due))
        self._enter(keys, due)
        if self._entries > 2 * len(self._due) + _SLACK:
            self._tidy()

    def discard(self, key: Key) -> None:
        """Forget `key`, if it is known."""
        self._due.pop(key, None)

    def next_due(self) -> int | None:
        """Return when the next key is due, or None when there is none."""
        while self._times:
            due = self._times[0]
            keys = self._at[due]
            while keys and self._due.get(keys[-1]) != due:
                keys.pop()
                self._entries -= 1
            if keys:
                return due
            del self._at[heappop(self._times)]
            self._look_ahead()
        return None

    def pop_due(self, now: int) -> list[Key]:
        """Remove and return the keys due at `now` or before, earliest first."""
        popped: list[Key] = []
        if self.horizon > now:
            return popped
        while self._times and self._times[0] <= now:
            due = heappop(self._times)
            keys = self._at.pop(due)
            self._entries -= len(keys)
            for key in keys:
                # Not those that were discarded, and none twice.
                if self._due.get(key) == due:
                    del self._due[key]
                    popped.append(key)
        self._look_ahead()
        return popped

    def _enter(self, keys: Sequence[Key], due: int) -> None:
        there = self._at.get(due)
        if there is None:
            self._at[due] = list(keys)
            heappush(self._times, due)
            self._look_ahead()
        else:
            there.extend(keys)
        self._entries += len(keys)

    def _tidy(self) -> None:
        self._at = {}
        for key, due in self._due.items():
            self._at.setdefault(due, []).append(key)
        self._times = list(self._at)
        heapify(self._times)
        self._look_ahead()
        self._entries = len(self._due)

    def _look_ahead(self) -> None:
        self.horizon = self._times[0] if self._times else inf
