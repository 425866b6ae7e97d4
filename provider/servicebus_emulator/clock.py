"""A clock that can be put forward, for tests of locks, times to live and schedules that nobody wants to wait for."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from servicebus_emulator.engine.clock import Clock, SystemClock

__all__ = ["LONGEST_SHIFT", "ShiftableClock", "TimeShiftError"]

LONGEST_SHIFT: Final = timedelta(days=3650)
"""How far ahead a clock can be put altogether: ten years."""

_MILLISECOND: Final = timedelta(milliseconds=1)
_NANOSECONDS: Final = 1_000_000


class TimeShiftError(ValueError):
    """A clock cannot be put forward like that."""


class ShiftableClock:
    """Runs as another clock does, ahead of it by all that it was put forward.

    It is never put back: what has expired stays so. A restart of the process forgets the shift.

    :param base: the clock that it runs ahead of; None = the machine's. Tokens go by it: clients make them with
        the time that they know.
    """

    __slots__ = ("_ahead", "_listeners", "_nanoseconds", "base")

    def __init__(self, base: Clock | None = None) -> None:
        self.base: Final = SystemClock() if base is None else base
        # Asked for several times per message: the machine's clock is read without a detour.
        self._nanoseconds = time.time_ns if base is None else lambda: base.now() * _NANOSECONDS
        self._ahead = 0
        self._listeners: list[Callable[[], None]] = []

    def now(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return self._nanoseconds() // _NANOSECONDS + self._ahead

    @property
    def ahead(self) -> timedelta:
        """By how much it was put forward altogether."""
        return self._ahead * _MILLISECOND

    def shift(self, by: timedelta) -> None:
        """Put the clock forward; who listens acts on it at once.

        :param by: at least a millisecond.
        :raises TimeShiftError: when that is no step forward, or leads more than ten years ahead.
        """
        if not _MILLISECOND <= by <= LONGEST_SHIFT - self.ahead:
            raise TimeShiftError(
                f"a shift of {by.total_seconds():g} seconds was asked for; allowed: forward only, 0.001 to"
                f" {(LONGEST_SHIFT - self.ahead).total_seconds():.0f} seconds"
            )
        self._ahead += by // _MILLISECOND
        for listener in tuple(self._listeners):
            listener()

    def listen(self, listener: Callable[[], None]) -> None:
        """Have `listener` called after each shift."""
        self._listeners.append(listener)

    def forget(self, listener: Callable[[], None]) -> None:
        """Call `listener` no longer."""
        if listener in self._listeners:
            self._listeners.remove(listener)
