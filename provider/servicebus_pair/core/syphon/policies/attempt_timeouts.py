"""How long one send to a destination may take: learned from how late its confirmations come (SPEC section 2).

A send that ends before its confirmation leaves one more copy. So each send that timed out doubles the time of the next
one, and quick confirmations bring it back slowly.
"""

from __future__ import annotations

from typing import Final

# Seconds: half of the lock duration of backlog queues; the rest is for settling.
LONGEST_ATTEMPT: Final = 30.0
# A confirmation that took less than this share of the time counts as quick.
_QUICK: Final = 0.5
_RETURN: Final = 0.9


class AttemptTimeouts:
    """The attempt timeout of each destination, by path without regard to case. All times are seconds.

    :param initial: of a destination whose confirmations are not late.
    """

    def __init__(self, initial: float) -> None:
        self._initial = initial
        self._longest = max(initial, LONGEST_ATTEMPT)
        self._lengthened: dict[str, float] = {}

    def current(self, entity: str) -> float:
        """Return how long the next send to ``entity`` may take."""
        return self._lengthened.get(entity.casefold(), self._initial)

    def is_lengthened(self, entity: str) -> bool:
        """Return whether confirmations come late, so that a send with less time would only leave another copy."""
        return entity.casefold() in self._lengthened

    def record_timeout(self, entity: str, seconds: float) -> None:
        """Record that no confirmation came in ``seconds``; a send that had less time than now allowed says nothing."""
        if seconds >= self.current(entity):
            self._lengthened[entity.casefold()] = min(2 * self.current(entity), self._longest)

    def record_confirmation(self, entity: str, seconds: float) -> None:
        """Record that a confirmation came after ``seconds``."""
        folded = entity.casefold()
        current = self.current(entity)
        if folded in self._lengthened and seconds < _QUICK * current:
            self._lengthened[folded] = _RETURN * current
            if self._lengthened[folded] <= self._initial:
                del self._lengthened[folded]
