"""Operation counters of a pair (SPEC section 8); ``pricing`` turns them into money."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from servicebus_pair.core.model.pricing import BILLED_BYTES, Operations, further_increments


class Operation(StrEnum):
    """Kind of operation; the values are the field names of ``Operations``."""

    SEND = "sends"
    DIVERT = "diverts"
    PING = "pings"
    RECEIVE = "receives"
    EMPTY_RECEIVE = "empty_receives"
    SETTLE = "settlements"
    RENEW = "lock_renewals"
    MANAGE = "management_calls"


_INCREMENTS: Final = "further_increments"


class Meter:
    """Counts the operations of one pair in this process, failed attempts included."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def count(self, operation: Operation, times: int = 1) -> None:
        """Count operations of at most 64 KB each."""
        self._counts[operation.value] += times

    def count_sizes(self, operation: Operation, sizes: Sequence[int]) -> None:
        """Count one operation for each message, and one increment for each 64 KB beyond its first.

        :param sizes: size of each message in bytes.
        """
        self._counts[operation.value] += len(sizes)
        for size in sizes:
            if size > BILLED_BYTES:
                self.count_increments(size)

    def count_increments(self, size: int) -> None:
        """Count each 64 KB of a message beyond the first; the caller counts the message itself.

        :param size: bytes of the message.
        """
        self._counts[_INCREMENTS] += further_increments(size)

    def read(self) -> Operations:
        """Return the counts so far."""
        return Operations(**self._counts)
