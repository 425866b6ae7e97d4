"""Measure elapsed time without the time in which this process was not scheduled."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

__all__ = ["Stopwatch"]

_TICK = 0.02
# Delay of a timer on an idle machine.
_USUAL = 0.005


class Stopwatch:
    """Measures on the clock of the event loop, as an asynchronous context manager.

    A bound is what a program may wait for. Where the tests take turns on a busy machine, each turn that another takes
    would count against it; that time is told by a timer of this loop that is late, and taken off. A program
    that waits too long lets timers run, so that is never taken off.
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
