"""A rate limit that can be changed while it is in use."""

from __future__ import annotations

import asyncio
from math import inf
from typing import Final

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.ports import Clock

__all__ = ["Throttle"]

_ROUNDING: Final = 1e-6
_SHORTEST_PAUSE: Final = 0.001


class Throttle:
    """Hands out permissions at most ``rate`` a second; unused ones add up to one second's worth.

    :param rate: per second; ``None`` for no limit.
    :raises ConfigurationError: the rate is not above 0.
    """

    def __init__(self, rate: float | None, *, clock: Clock) -> None:
        self._clock = clock
        self._rate = _checked(rate)
        self._allowance = 0.0
        self._at = clock.now()
        self._changed = asyncio.Event()

    @property
    def rate(self) -> float | None:
        """Permissions a second; ``None`` for no limit."""
        return self._rate

    @rate.setter
    def rate(self, rate: float | None) -> None:
        self._refill()
        self._rate = _checked(rate)
        self._changed.set()

    async def take(self, most: int, *, patience: float = inf) -> int:
        """Wait for at least one permission; take and answer how many, at most ``most``.

        :param patience: seconds; 0 is answered when there was none for so long.
        """
        until = self._clock.now() + patience
        while True:
            self._refill()
            if self._rate is None:
                return most
            if self._allowance >= 1 - _ROUNDING:
                taken = min(most, max(1, int(self._allowance)))
                self._allowance -= taken
                return taken
            left = until - self._clock.now()
            if left <= 0:
                return 0
            await self._pause(min(left, max(_SHORTEST_PAUSE, (1 - self._allowance) / self._rate)))

    def give_back(self, unused: int) -> None:
        """Return permissions that were taken and not used."""
        if self._rate is not None:
            self._allowance += unused

    def _refill(self) -> None:
        now = self._clock.now()
        if self._rate is not None:
            self._allowance = min(self._allowance + (now - self._at) * self._rate, max(1.0, self._rate))
        self._at = now

    async def _pause(self, seconds: float) -> None:
        """Wait, or until the rate changes."""
        self._changed.clear()
        waits = [
            asyncio.ensure_future(self._clock.sleep(seconds)),
            asyncio.ensure_future(self._changed.wait()),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()


def _checked(rate: float | None) -> float | None:
    if rate is not None and not 0 < rate < float("inf"):
        raise ConfigurationError(f"rate is {rate!r}: it must be above 0 messages a second, or None for no limit")
    return rate
