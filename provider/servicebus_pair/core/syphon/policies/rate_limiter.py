"""A token bucket whose rate can be changed while it is in use."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Final

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.interfaces import Clock, sleep_until_set

_ROUNDING: Final = 1e-6
_MIN_PAUSE: Final = 0.001


class RateLimiter:
    """Grants at most ``rate`` permits a second; unused permits add up to ``burst``.

    :param rate: permits a second; ``None`` for no limit.
    :param burst: most permits that can be granted at once; by default one second's worth, at least 1.
    :raises ConfigurationError: the rate is not above 0.
    """

    def __init__(self, rate: float | None, *, clock: Clock, burst: int | None = None) -> None:
        self._clock = clock
        self._rate = _checked(rate)
        self._burst = burst
        self._tokens = 0.0
        self._refilled_at = clock.now()
        self._changed = asyncio.Event()

    @property
    def rate(self) -> float | None:
        """Permits a second; ``None`` for no limit."""
        return self._rate

    @rate.setter
    def rate(self, rate: float | None) -> None:
        self._refill()
        self._rate = _checked(rate)
        self._changed.set()

    async def acquire(self, max_permits: int, *, min_permits: int = 1, timeout: float = inf) -> int:
        """Wait for permits and return how many were granted: ``min_permits`` to ``max_permits``.

        :param min_permits: at most the burst.
        :param timeout: seconds; 0 is returned when there were too few for so long.
        """
        deadline = self._clock.now() + timeout
        while True:
            self._refill()
            if self._rate is None:
                return max_permits
            if self._tokens >= min_permits - _ROUNDING:
                granted = min(max_permits, max(min_permits, int(self._tokens)))
                self._tokens -= granted
                return granted
            remaining = deadline - self._clock.now()
            if remaining <= 0:
                return 0
            await self._pause(min(remaining, max(_MIN_PAUSE, (min_permits - self._tokens) / self._rate)))

    def release(self, unused: int) -> None:
        """Return permits that were granted and not used."""
        if self._rate is not None:
            self._tokens += unused

    def _refill(self) -> None:
        now = self._clock.now()
        if self._rate is not None:
            burst = max(1.0, self._rate) if self._burst is None else self._burst
            self._tokens = min(self._tokens + (now - self._refilled_at) * self._rate, burst)
        self._refilled_at = now

    async def _pause(self, seconds: float) -> None:
        """Wait for some time, or until the rate changes."""
        self._changed.clear()
        await sleep_until_set(self._clock, seconds, self._changed)


def _checked(rate: float | None) -> float | None:
    if rate is not None and not 0 < rate < inf:
        raise ConfigurationError(f"rate is {rate!r}: it must be above 0 messages a second, or None for no limit")
    return rate
