"""Pacing: a token bucket that lets windows of messages through at a steady rate."""

from __future__ import annotations

from typing import Final

from servicebus_pair.core.ports import Clock

__all__ = ["UNPACED_WINDOW", "WINDOW_SECONDS", "Pace"]

# A paced task sends at least this often, so that an outage meets a stream and not one big batch.
WINDOW_SECONDS: Final = 0.5
# Messages in hand at a time when nothing is paced.
UNPACED_WINDOW: Final = 10_000


class Pace:
    """Lets messages through; after a stall it does not catch up by more than one window.

    :param rate: messages per second; ``None`` lets all through at once.
    """

    def __init__(self, rate: float | None, *, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._tokens = 0.0
        self._filled = clock.now()
        self.window: Final = UNPACED_WINDOW if rate is None else min(UNPACED_WINDOW, max(1, int(rate * WINDOW_SECONDS)))

    async def take(self, messages: int) -> None:
        """Wait until ``messages``, at most one window of them, may go."""
        if self._rate is None:
            return
        self._fill(self._rate)
        if self._tokens < messages:
            await self._clock.sleep((messages - self._tokens) / self._rate)
            self._fill(self._rate)
        self._tokens -= messages

    def _fill(self, rate: float) -> None:
        now = self._clock.now()
        self._tokens = min(float(self.window), self._tokens + (now - self._filled) * rate)
        self._filled = now
