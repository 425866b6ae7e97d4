"""How many messages the next batch receives or sends: limited by bytes, and by what is settled within its locks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from servicebus_pair.core.syphon.batch_sender import BatchSender
    from servicebus_pair.core.syphon.drain_context import DrainContext

__all__ = ["INITIAL_BATCH_SIZE", "next_batch_size"]

INITIAL_BATCH_SIZE: Final = 16
_GROWTH: Final = 4


def next_batch_size(
    context: DrainContext, size: int, sender: BatchSender, *, count: int, seconds: float, shrink: bool
) -> int:
    """Return the size of the batch after one of ``size``.

    :param count: how many messages that one had.
    :param seconds: how long it took.
    :param shrink: it was too large for its locks.
    """
    limit = min(context.max_batch_messages, context.max_batch_bytes // sender.recent_max_bytes)
    if shrink:
        limit = min(limit, size // 2)
    elif seconds > context.slow_batch_seconds:
        # What takes long however few messages there are must not end in batches of one.
        limit = min(limit, max(INITIAL_BATCH_SIZE, size // 2))
    sender.recent_max_bytes = max(1, sender.recent_max_bytes * 3 // 4)
    return max(1, min(limit, size * _GROWTH if count >= size else size))
