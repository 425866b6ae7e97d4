"""A clock that stands still until it is told to go on."""

from __future__ import annotations


class ManualClock:
    """Time as a test wants it."""

    def __init__(self, start: int = 1_700_000_000_000) -> None:
        self._now = start

    def now(self) -> int:
        return self._now

    def go_on(self, seconds: float) -> None:
        self._now += int(seconds * 1000)
