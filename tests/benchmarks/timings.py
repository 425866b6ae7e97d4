"""Times of alternating contenders, round by round, so that other load on the machine affects all alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TypeVar

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class Timings:
    """Elapsed time and CPU time in each round, in seconds per message."""

    elapsed: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        return 1 / median(self.elapsed)

    def relative_to(self, other: Timings) -> float:
        """Return the rate divided by another one: the median over the rounds."""
        return median(theirs / ours for ours, theirs in zip(self.elapsed, other.elapsed, strict=True))

    def cpu_relative_to(self, other: Timings) -> float:
        """Return the messages per CPU second, divided by those of another one: the median over the rounds."""
        return median(theirs / ours for ours, theirs in zip(self.cpu, other.cpu, strict=True))


def rotated(contenders: Sequence[ItemT], turn: int) -> list[ItemT]:
    """Return the contenders in the order of a round: each starts some rounds."""
    first = turn % len(contenders)
    return [*contenders[first:], *contenders[:first]]
