"""How many messages the next batch receives or sends: limited by bytes, and by what is settled within its locks."""

from __future__ import annotations

from typing import Final

INITIAL_BATCH_SIZE: Final = 16
_GROWTH: Final = 4


def next_batch_size(size: int, *, limit: int, full: bool, slow: bool, shrink: bool) -> int:
    """Return the size of the batch after one of ``size``.

    :param limit: most messages of any batch.
    :param full: that one had so many messages.
    :param slow: it took too long.
    :param shrink: it was too large for its locks.
    """
    if shrink:
        limit = min(limit, size // 2)
    elif slow:
        # What takes long however few messages there are must not end in batches of one.
        limit = min(limit, max(INITIAL_BATCH_SIZE, size // 2))
    return max(1, min(limit, size * _GROWTH if full else size))
