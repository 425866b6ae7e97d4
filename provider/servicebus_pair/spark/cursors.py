"""Cursors over queues by sequence number: where a look begins and ends, and what one batch takes. Pure.

An offset is the sequence number to go on from, by place: ``{"flights": 120, "flights/$DeadLetterQueue": 1}``.
It says nothing of how many messages are there, since numbers of messages that were taken are not given again.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from servicebus_pair.core.errors import ConfigurationError

__all__ = [
    "DEAD_LETTER",
    "FIRST",
    "MAIN",
    "SUB_QUEUES",
    "Ahead",
    "Offsets",
    "Peekable",
    "check_numbers",
    "check_range",
    "idle_pause",
    "next_offsets",
    "peekables",
    "search_end",
    "starting",
]

FIRST: Final = 1
_IDLE_SECONDS: Final = 1.0
_PARTITION: Final = 2**48
# An AMQP long; a queue does not come to the last one.
_LAST: Final = 2**63 - 1
MAIN: Final = "main"
DEAD_LETTER: Final = "deadLetter"
SUB_QUEUES: Final[Mapping[str, str]] = {
    MAIN: "",
    DEAD_LETTER: "/$DeadLetterQueue",
    "transferDeadLetter": "/$Transfer/$DeadLetterQueue",
}

Offsets: TypeAlias = dict[str, int]


@dataclass(frozen=True, slots=True)
class Peekable:
    """What a cursor walks along: a queue or subscription, one of its sub-queues, or one of its sessions."""

    path: str
    sub_queue: str = MAIN
    session_id: str | None = None

    @property
    def address(self) -> str:
        """The path of the sub-queue."""
        return f"{self.path}{SUB_QUEUES[self.sub_queue]}"

    @property
    def place(self) -> str:
        """The name in an offset."""
        return self.address if self.session_id is None else f"{self.address}#{self.session_id}"


@dataclass(frozen=True, slots=True)
class Ahead:
    """What lies before a cursor: the number of the first message, and the one after the last."""

    first: int
    end: int


def starting(places: Iterable[str], given: Mapping[str, int], *, option: str) -> Offsets:
    """Answer the offsets of places, from the beginning where none is given.

    :param option: by which it was given.
    :raises ConfigurationError: it names a place that is not read.
    """
    offsets = dict.fromkeys(places, FIRST)
    for place in given:
        if place not in offsets:
            raise ConfigurationError(f"option {option} names {place!r}: what is read is {', '.join(offsets)}")
    return offsets | dict(given)


def check_range(start: Mapping[str, int], end: Mapping[str, int]) -> None:
    """Refuse a range that ends before it begins. :raises ConfigurationError: naming the place."""
    for place, number in end.items():
        if number < start[place]:
            raise ConfigurationError(
                f"option endingOffsets is {number} for {place}: allowed is a number from {start[place]}, its beginning"
            )


def search_end(first: int) -> Generator[int, int | None, int]:
    """Find the number after the last message, by asking about few numbers; answer ``first`` when there is none.

    Yields a number, and is sent that of the first message from there on, or ``None``. It asks in growing steps and
    then halves: of a queue with a million messages, about forty times.
    """
    found = yield first
    if found is None:
        return first
    last, step = found, 1
    none_from = _LAST
    while last < _LAST - step:
        found = yield last + step
        if found is None:
            none_from = last + step
            break
        last, step = found, 2 * step
    while none_from - last > 1:
        middle = last + (none_from - last) // 2
        found = yield middle
        if found is None:
            none_from = middle
        else:
            last = found
    return last + 1


def check_numbers(place: str, ahead: Ahead) -> None:
    """Refuse to follow an entity whose numbers do not grow: new messages would be passed over.

    The service numbers a partitioned entity by partition, and puts the partition's number into the upper 16 bits.

    :raises ConfigurationError: naming the place.
    """
    if ahead.end > _PARTITION:
        raise ConfigurationError(
            f"{place} is partitioned: its sequence numbers grow within each partition only, so a stream would pass "
            "messages over; read it by batches"
        )


def idle_pause(found_nothing_at: float, *, now: float) -> float:
    """Answer how many seconds the next look waits, since the last one found nothing.

    :param found_nothing_at: when that was; minus infinity if it found something.
    """
    return max(0.0, found_nothing_at + _IDLE_SECONDS - now)


def next_offsets(start: Mapping[str, int], ahead: Mapping[str, Ahead], *, limit: int | None) -> Offsets:
    """Answer where the next batch ends.

    :param start: where it begins, by place.
    :param ahead: what lies before the cursor of each place that has messages.
    :param limit: most messages of the batch; ``None`` takes all.
    """
    shares = _shares({place: each.end - each.first for place, each in ahead.items()}, limit)
    moved = {place: ahead[place].first + share for place, share in shares.items() if share}
    return {**start, **moved}


def _shares(sizes: Mapping[str, int], limit: int | None) -> dict[str, int]:
    """Share ``limit`` out by size; each gets one before any gets more."""
    total = sum(sizes.values())
    if limit is None or total <= limit:
        return dict(sizes)
    by_size = sorted(sizes, key=lambda place: (-sizes[place], place))
    shares = dict.fromkeys(by_size[:limit], 1)
    rest = limit - len(shares)
    wanted = {place: sizes[place] - 1 for place in shares}
    left = sum(wanted.values())
    for place, want in wanted.items():
        share = min(want, -(-want * rest // left)) if left else 0
        shares[place] += share
        rest, left = rest - share, left - want
    return shares


def peekables(paths: Collection[str], sub_queues: Collection[str], sessions: Collection[str]) -> tuple[Peekable, ...]:
    """Answer all that the options name. :raises ConfigurationError: sessions of a sub-queue, which has none."""
    if not sessions:
        return tuple(Peekable(path, sub_queue) for path in paths for sub_queue in sub_queues)
    if set(sub_queues) != {MAIN}:
        raise ConfigurationError(
            f"options sessionId and subQueue={','.join(sub_queues)} are both given: a sub-queue has no sessions"
        )
    return tuple(Peekable(path, MAIN, session) for path in paths for session in sessions)
