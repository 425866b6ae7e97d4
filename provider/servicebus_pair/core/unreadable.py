"""Getting past a message that the SDK cannot decode: a peek that would show it fails as a whole. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

__all__ = ["BEYOND_ALL", "readable_behind"]

# No message has this sequence number, not even where its highest 16 bits name a partition: a peek from there on shows
# nothing, and fails only where nothing can be read at all.
BEYOND_ALL: Final = 2**62


async def readable_behind(bad: int, readable: Callable[[int], Awaitable[bool]]) -> int:
    """Answer the first sequence number after ``bad`` from which a message can be read, by few questions.

    :param readable: asks whether the first message from a number on can be read; nothing at all counts as read.
    """
    low, step = bad, 1
    while not await readable(low + step):
        low, step = low + step, step * 2
    high = low + step
    while high - low > 1:
        middle = (low + high) // 2
        if await readable(middle):
            high = middle
        else:
            low = middle
    return high
