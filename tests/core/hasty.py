"""A clock for tests that wait for many tries."""

from __future__ import annotations

from servicebus_pair.core.ports import SystemClock

__all__ = ["HastyClock"]


class HastyClock(SystemClock):
    """Real time, but pauses between tries pass twenty times faster."""

    def __init__(self) -> None:
        super().__init__()
        self._skipped = 0.0

    def now(self) -> float:
        return super().now() + self._skipped

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 20)
        self._skipped += seconds * 19 / 20
