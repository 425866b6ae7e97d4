"""How a task takes its rows in hand: windows of bounded size, and lanes that are sent at the same time. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final
from zlib import crc32

__all__ = ["WINDOW_BYTES", "lanes", "windows"]

# The bodies in hand of one task.
WINDOW_BYTES: Final = 16 * 1024 * 1024
# A lane of less would send batches that are not full.
_LANE_BYTES: Final = 256 * 1024


def windows(sizes: Sequence[int], *, rows: int, most_bytes: int = WINDOW_BYTES) -> Iterator[range]:
    """Cut rows into neighbours of at most so many rows and bytes; a row that is larger stands alone.

    :param sizes: bytes of each row.
    """
    start, held = 0, 0
    for number, size in enumerate(sizes):
        if number > start and (number - start >= rows or held + size > most_bytes):
            yield range(start, number)
            start, held = number, 0
        held += size
    if start < len(sizes):
        yield range(start, len(sizes))


def lanes(keys: Sequence[Hashable | None], sizes: Sequence[int], *, most: int) -> list[list[int]]:
    """Spread rows over lanes, each of which is sent in its order; answer the rows' numbers by lane.

    Rows of one key share a lane, so that their order is kept. There are no more lanes than can fill a batch.

    :param keys: what each row's order is kept within; ``None`` for none.
    :param sizes: bytes of each row.
    :param most: of lanes.
    """
    count = max(1, min(most, len(keys), sum(sizes) // _LANE_BYTES))
    spread: list[list[int]] = [[] for _ in range(count)]
    for number, key in enumerate(keys):
        lane = number * count // len(keys) if key is None else crc32(repr(key).encode()) % count
        spread[lane].append(number)
    return [lane for lane in spread if lane]
