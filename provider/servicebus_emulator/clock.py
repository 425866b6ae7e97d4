"""A clock that can be moved forward, for tests of locks, times to live and schedules."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from servicebus_emulator.engine.model.clock import Clock, SystemClock

MAX_SHIFT: Final = timedelta(days=3650)
"""How far ahead of its base a clock can be moved in total: ten years."""

_MILLISECOND: Final = timedelta(milliseconds=1)
_NANOSECONDS: Final = 1_000_000


class TimeShiftError(ValueError):
    """The clock cannot be shifted by this amount."""


class ShiftableClock:
    """A clock that runs ahead of another by the sum of its shifts.

    It never moves back, so what has expired stays expired. A restart of the process resets the shift.

    :param base: the underlying clock; None = the machine's. Tokens are checked against it, because clients issue them
        by their own clock.
    """

    __slots__ = ("_ahead", "_listeners", "_nanoseconds", "base")

    def __init__(self, base: Clock | None = None) -> None:
        self.base: Final = SystemClock() if base is None else base
        # Called several times per message, so the machine's clock is read directly.
        self._nanoseconds = time.time_ns if base is None else lambda: base.now() * _NANOSECONDS
        self._ahead = 0
        self._listeners: list[Callable[[], None]] = []

    def now(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return self._nanoseconds() // _NANOSECONDS + self._ahead

    @property
    def ahead(self) -> timedelta:
        """The sum of all shifts."""
        return self._ahead * _MILLISECOND

    def shift(self, by: timedelta) -> None:
        """Move the clock forward and call the listeners.

        :param by: at least a millisecond.
        :raises TimeShiftError: the shift is not positive, or the total would exceed ten years.
        """
        if not _MILLISECOND <= by <= MAX_SHIFT - self.ahead:
            raise TimeShiftError(
                f"the shift is {by.total_seconds():g} seconds; allowed: forward only, 0.001 to"
                f" {(MAX_SHIFT - self.ahead).total_seconds():.0f} seconds"
            )
        self._ahead += by // _MILLISECOND
        for listener in tuple(self._listeners):
            listener()

    def add_listener(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each shift."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        """Stop calling `listener`."""
        if listener in self._listeners:
            self._listeners.remove(listener)
