"""Counting every operation where it happens (SPEC section 8). What it costs is for ``costs`` to say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from servicebus_pair.core.costs import BILLED_BYTES, Operations

__all__ = ["Meter", "Operation"]


class Operation(StrEnum):
    """What is counted; the names are the fields of ``Operations``."""

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
    """The operations of one pair in this process, from its beginning; attempts that failed are counted too."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def count(self, operation: Operation, times: int = 1) -> None:
        """Count operations of no more than 64 KB each."""
        self._counts[operation.value] += times

    def count_sizes(self, operation: Operation, sizes: Iterable[int]) -> None:
        """Count one operation for each message, and one increment for each 64 KB beyond its first.

        :param sizes: bytes of each message.
        """
        times = 0
        for size in sizes:
            times += 1
            if size > BILLED_BYTES:
                self.count_increments(size)
        self._counts[operation.value] += times

    def count_increments(self, size: int) -> None:
        """Count each 64 KB beyond the first of a message; the message itself is counted elsewhere.

        :param size: bytes.
        """
        self._counts[_INCREMENTS] += max(0, size - 1) // BILLED_BYTES

    def read(self) -> Operations:
        """Answer the counts so far."""
        return Operations(**self._counts)
