"""A clock that stands still until a test advances it."""

from __future__ import annotations


class ManualClock:
    def __init__(self, start: int = 1_700_000_000_000) -> None:
        self._now = start

    def now(self) -> int:
        return self._now

    def advance(self, seconds: float) -> None:
        self._now += int(seconds * 1000)
