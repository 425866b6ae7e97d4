"""Splits the rows of a task into batches of bounded size, and a batch into groups that are sent concurrently. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final
from zlib import crc32

# Bounds the message bodies that one task holds in memory.
MAX_BATCH_BYTES: Final = 16 * 1024 * 1024
# A smaller group could not fill a Service Bus batch.
_MIN_GROUP_BYTES: Final = 256 * 1024


def split_rows(sizes: Sequence[int], *, max_rows: int, max_bytes: int = MAX_BATCH_BYTES) -> Iterator[range]:
    """Yield consecutive row ranges within both limits; a row larger than ``max_bytes`` gets a range of its own.

    :param sizes: size of each row, bytes.
    """
    start, batch_bytes = 0, 0
    for number, size in enumerate(sizes):
        if number > start and (number - start >= max_rows or batch_bytes + size > max_bytes):
            yield range(start, number)
            start, batch_bytes = number, 0
        batch_bytes += size
    if start < len(sizes):
        yield range(start, len(sizes))


def group_by_key(keys: Sequence[Hashable | None], sizes: Sequence[int], *, max_groups: int) -> list[list[int]]:
    """Return row numbers by group; each group is sent in its order.

    Rows with the same key share a group, which keeps their order. No more groups are made than can fill a batch.

    :param keys: ordering key of each row; ``None`` for rows without order.
    :param sizes: size of each row, bytes.
    """
    count = max(1, min(max_groups, len(keys), sum(sizes) // _MIN_GROUP_BYTES))
    groups: list[list[int]] = [[] for _ in range(count)]
    for number, key in enumerate(keys):
        index = number * count // len(keys) if key is None else crc32(repr(key).encode()) % count
        groups[index].append(number)
    return [group for group in groups if group]
