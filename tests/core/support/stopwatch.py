"""Measure elapsed time without the time in which this process was not scheduled."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

_TICK = 0.02
# Delay of a timer on an idle machine.
_USUAL = 0.005


class Stopwatch:
    """Measures on the clock of the event loop, as an asynchronous context manager.

    On a busy machine, time in which other processes run would count as well. A late timer of this loop shows it, and
    it is subtracted. A program that waits too long lets timers run, so that is never subtracted.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._late = 0.0

    async def __aenter__(self) -> Self:
        self._began = asyncio.get_running_loop().time()
        self._ticking = asyncio.create_task(self._tick(), name="stopwatch")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ticking.cancel()
        self.seconds = asyncio.get_running_loop().time() - self._began - self._late

    async def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + _TICK
            await asyncio.sleep(_TICK)
            late = loop.time() - due
            self._late += late if late > _USUAL else 0.0
