"""A clock whose time passes only by sleeping."""

from __future__ import annotations

import asyncio
from typing import Final

START: Final = 1 / 64
"""So early that no time can be mistaken for a span, nor a difference for a remainder."""


class ManualClock:
    """Starts at ``time`` seconds; a sleep advances it at once.

    :ivar sleeps: the seconds of each sleep.
    """

    def __init__(self, time: float = START) -> None:
        self.time = time
        self.sleeps: list[float] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += max(0.0, seconds)
        self.sleeps.append(seconds)
        await asyncio.sleep(0)
