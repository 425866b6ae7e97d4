"""The time source of everything in the broker that waits or expires."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A source of wall-clock time."""

    def now(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        """Return milliseconds since 1970-01-01 UTC."""
        return time.time_ns() // 1_000_000
