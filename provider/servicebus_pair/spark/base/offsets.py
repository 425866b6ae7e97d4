"""Offsets by sequence number: where a read starts and ends, and how much one micro-batch takes. Pure.

An offset is the sequence number of the next message to read, by queue: ``{"flights": 120,
"flights/$DeadLetterQueue": 1}``. The difference of two offsets is only an upper bound of the message count, because
the service never reuses the sequence numbers of messages that were removed.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from servicebus_pair.core.errors import ConfigurationError

FIRST_SEQUENCE_NUMBER: Final = 1
_IDLE_SECONDS: Final = 1.0
# A partitioned entity keeps the partition in the upper 16 bits of its sequence numbers.
_MAX_UNPARTITIONED: Final = 2**48
MAX_SEQUENCE_NUMBER: Final = 2**63 - 1
MAIN: Final = "main"
DEAD_LETTER: Final = "deadLetter"
SUB_QUEUES: Final[Mapping[str, str]] = {
    MAIN: "",
    DEAD_LETTER: "/$DeadLetterQueue",
    "transferDeadLetter": "/$Transfer/$DeadLetterQueue",
}

Offsets: TypeAlias = dict[str, int]


@dataclass(frozen=True, slots=True)
class PeekTarget:
    """A queue or subscription, one of its sub-queues, or one of its sessions."""

    path: str
    sub_queue: str = MAIN
    session_id: str | None = None

    @property
    def address(self) -> str:
        """The path of the sub-queue."""
        return f"{self.path}{SUB_QUEUES[self.sub_queue]}"

    @property
    def offset_key(self) -> str:
        """The key of this target in :data:`Offsets`."""
        return self.address if self.session_id is None else f"{self.address}#{self.session_id}"


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Sequence numbers of the messages still to read, from ``first`` up to but excluding ``end``."""

    first: int
    end: int


def starting_offsets(keys: Iterable[str], given: Mapping[str, int], *, option: str) -> Offsets:
    """Return an offset for every key: the given one, else the beginning.

    :param option: the name of the option that ``given`` comes from.
    :raises ConfigurationError: ``given`` names something that is not read.
    """
    offsets = dict.fromkeys(keys, FIRST_SEQUENCE_NUMBER)
    for key in given:
        if key not in offsets:
            raise ConfigurationError(
                f"option {option} names {key!r}, which is not read: allowed are {', '.join(offsets)}"
            )
    return offsets | dict(given)


def checkpoint_offsets(offset: Any) -> Offsets:
    """Return the offsets that a checkpoint has. :raises ConfigurationError: no stream that peeks wrote them."""
    if not isinstance(offset, dict) or any(type(each) is not int or each < 0 for each in offset.values()):
        raise ConfigurationError(
            "the checkpoint has no sequence numbers: it is damaged, or of a stream with option mode=receive; start "
            "with a new checkpoint"
        )
    return offset


def check_range(start: Mapping[str, int], end: Mapping[str, int]) -> None:
    """Check that no range ends before it starts. :raises ConfigurationError: naming the queue."""
    for key, number in end.items():
        if number < start[key]:
            raise ConfigurationError(
                f"option endingOffsets is {number} for {key}: allowed is a number from {start[key]}, where it starts"
            )


def find_end(first: int) -> Generator[int, int | None, int]:
    """Find the sequence number after the last message; returns ``first`` when there is no message.

    A generator-based search without I/O: it yields a sequence number and expects the number of the first message from
    there on, or ``None``. Exponential, then binary search: about forty probes for a million messages.
    """
    found = yield first
    if found is None:
        return first
    last, step = found, 1
    empty_from = MAX_SEQUENCE_NUMBER
    while last < MAX_SEQUENCE_NUMBER - step:
        found = yield last + step
        if found is None:
            empty_from = last + step
            break
        last, step = found, 2 * step
    while empty_from - last > 1:
        middle = last + (empty_from - last) // 2
        found = yield middle
        if found is None:
            empty_from = middle
        else:
            last = found
    return last + 1


def split_range(start: int, end: int, parts: int) -> list[OffsetRange]:
    """Split sequence numbers into at most ``parts`` contiguous ranges of about equal width.

    Those of a partitioned entity are not split: their upper bits are the partition, so one range would have nearly all.
    """
    if end > _MAX_UNPARTITIONED or end <= start:
        return [OffsetRange(start, end)]
    width = -(-(end - start) // parts)
    return [OffsetRange(first, min(end, first + width)) for first in range(start, end, width)]


def check_not_partitioned(key: str, available: OffsetRange) -> None:
    """Check that a stream can follow this entity: its sequence numbers must grow in order of arrival.

    In a partitioned entity they grow within each partition only, so a stream would skip messages.

    :raises ConfigurationError: the entity is partitioned.
    """
    if available.end > _MAX_UNPARTITIONED:
        raise ConfigurationError(
            f"{key} is partitioned: its sequence numbers grow within each partition only, so a stream, or a read by "
            "time, would skip messages; use a batch read by offsets instead"
        )


def idle_delay(last_empty_at: float, *, now: float) -> float:
    """Return how many seconds to wait before the next poll.

    :param last_empty_at: time of the last poll if it found no messages, else minus infinity.
    """
    return max(0.0, last_empty_at + _IDLE_SECONDS - now)


def next_offsets(start: Mapping[str, int], available: Mapping[str, OffsetRange], *, limit: int | None) -> Offsets:
    """Return where the next micro-batch ends.

    :param start: where it starts.
    :param available: what can be read, for each target that has messages.
    :param limit: maximum number of messages in the batch; ``None`` takes all.
    """
    counts = _allocate({key: each.end - each.first for key, each in available.items()}, limit)
    return {**start, **{key: available[key].first + count for key, count in counts.items() if count}}


def _allocate(sizes: Mapping[str, int], limit: int | None) -> dict[str, int]:
    """Divide ``limit`` in proportion to ``sizes``; every key gets one before any key gets two."""
    total = sum(sizes.values())
    if limit is None or total <= limit:
        return dict(sizes)
    by_size = sorted(sizes, key=lambda key: (-sizes[key], key))
    counts = dict.fromkeys(by_size[:limit], 1)
    budget = limit - len(counts)
    wanted = {key: sizes[key] - 1 for key in counts}
    outstanding = sum(wanted.values())
    for key, want in wanted.items():
        count = min(want, -(-want * budget // outstanding)) if outstanding else 0
        counts[key] += count
        budget, outstanding = budget - count, outstanding - want
    return counts


def peek_targets(
    paths: Collection[str], sub_queues: Collection[str], session_ids: Collection[str]
) -> tuple[PeekTarget, ...]:
    """Return a target per path and sub-queue, or per path and session.

    :raises ConfigurationError: sessions are combined with a sub-queue, which has none.
    """
    if not session_ids:
        return tuple(PeekTarget(path, sub_queue) for path in paths for sub_queue in sub_queues)
    if set(sub_queues) != {MAIN}:
        raise ConfigurationError(
            f"options sessionId and subQueue={','.join(sub_queues)} are both given: a sub-queue has no sessions"
        )
    return tuple(PeekTarget(path, MAIN, session_id) for path in paths for session_id in session_ids)
