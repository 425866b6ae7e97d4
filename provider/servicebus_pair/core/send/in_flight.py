"""Sends in flight, so that closing a pair can wait for them (SPEC section 7)."""

from __future__ import annotations

import asyncio

from servicebus_pair.core.model.errors import PairClosedError

__all__ = ["InFlightSends"]


class InFlightSends:
    """Counts sends in flight; a context manager around each send."""

    def __init__(self) -> None:
        self._count = 0
        self._closing = False
        self._idle = asyncio.Event()
        self._idle.set()

    def __enter__(self) -> None:
        if self._closing:
            raise PairClosedError("the pair is closing or closed: nothing was sent; open a new pair")
        self._count += 1
        self._idle.clear()

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if self._count == 0:
            self._idle.set()

    async def close(self, *, grace: float) -> int:
        """Refuse new sends and wait up to ``grace`` seconds for those in flight; return how many remain."""
        self._closing = True
        try:
            async with asyncio.timeout(grace):
                await self._idle.wait()
        except TimeoutError:
            return self._count
        return 0
