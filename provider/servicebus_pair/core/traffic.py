"""Sends in flight: closing lets them finish (SPEC section 7)."""

from __future__ import annotations

import asyncio
from types import TracebackType

from servicebus_pair.core.errors import PairClosedError

__all__ = ["Traffic"]


class Traffic:
    """Counts what is in flight; a context manager around each send."""

    def __init__(self) -> None:
        self._in_flight = 0
        self._closing = False
        self._quiet = asyncio.Event()
        self._quiet.set()

    def __enter__(self) -> None:
        if self._closing:
            raise PairClosedError("the pair is closing or closed: nothing was sent; open a new pair")
        self._in_flight += 1
        self._quiet.clear()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._in_flight -= 1
        if self._in_flight == 0:
            self._quiet.set()

    async def close(self, *, grace: float) -> int:
        """Let nothing more in, wait for what is in flight, and answer how much still is after ``grace`` seconds."""
        self._closing = True
        try:
            async with asyncio.timeout(grace):
                await self._quiet.wait()
        except TimeoutError:
            return self._in_flight
        return 0
