"""Waiting for what a syphon reports, instead of for a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from servicebus_pair.core import DrainReport

__all__ = ["Watch"]


class Watch:
    """A progress callback to wait on."""

    def __init__(self) -> None:
        self.report = DrainReport()
        self._told = asyncio.Event()

    def __call__(self, report: DrainReport) -> None:
        self.report = report
        self._told.set()

    async def until(self, holds: Callable[[DrainReport], object]) -> None:
        """Wait until ``holds`` of what was reported last."""
        while not holds(self.report):
            self._told.clear()
            await self._told.wait()
