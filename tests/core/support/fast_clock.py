"""A clock for tests with many retries."""

from __future__ import annotations

from servicebus_pair.core.model.interfaces import SystemClock

__all__ = ["FastClock"]


class FastClock(SystemClock):
    """Real time, but sleeps pass twenty times faster."""

    def __init__(self) -> None:
        super().__init__()
        self._skipped = 0.0

    def now(self) -> float:
        return super().now() + self._skipped

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / 20)
        self._skipped += seconds * 19 / 20
