"""How many messages the next batch receives or sends: limited by bytes, and by what is settled within its locks."""

from __future__ import annotations

from typing import Final

INITIAL_BATCH_SIZE: Final = 16
_GROWTH: Final = 4
# After a batch that took less than this part of the longest time: a larger one takes no longer than that either.
_QUICK_GROWTH: Final = 16


def next_batch_size(size: int, *, limit: int, full: bool, share: float, shrink: bool) -> int:
    """Return the size of the batch after one of ``size``.

    :param limit: most messages of any batch.
    :param full: that one had so many messages.
    :param share: how long it took, as a share of the longest that it should.
    :param shrink: it was too large for its locks.
    """
    if shrink:
        limit = min(limit, size // 2)
    elif share > 1:
        # What takes long however few messages there are must not end in batches of one.
        limit = min(limit, max(INITIAL_BATCH_SIZE, size // 2))
    growth = _QUICK_GROWTH if share * _QUICK_GROWTH <= 1 else _GROWTH
    return max(1, min(limit, size * growth if full else size))
