"""Wait for the progress of a drain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from servicebus_pair.core import DrainReport


class ProgressWaiter:
    """A progress callback that a test can wait on."""

    def __init__(self) -> None:
        self.report = DrainReport()
        self._changed = asyncio.Event()

    def __call__(self, report: DrainReport) -> None:
        self.report = report
        self._changed.set()

    async def until(self, condition: Callable[[DrainReport], object]) -> None:
        while not condition(self.report):
            self._changed.clear()
            await self._changed.wait()
