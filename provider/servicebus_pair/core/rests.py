"""Which destinations rest after a failure, and for how long (SPEC section 6). Pure: time is a parameter.

All links of a syphon share one :class:`Rests`: while a destination is in trouble one of them tries
it, the others go on with other destinations.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

__all__ = ["FAILURES_BEFORE_GIVING_UP", "LONGEST_REST_SECONDS", "Rests", "rest_seconds"]

LONGEST_REST_SECONDS: Final = 120.0
FAILURES_BEFORE_GIVING_UP: Final = 5


def rest_seconds(failures: int, *, first: float) -> float:
    """Answer how long to rest after so many failures in a row: ``first``, doubling, at most 120 s."""
    return float(min(first * 2 ** min(max(failures - 1, 0), 30), LONGEST_REST_SECONDS))


@dataclass(slots=True)
class _Trouble:
    error: str
    failures: int
    noted: float
    until: float
    tried: bool = False


class Rests:
    """Rests of destinations, by path without regard to case.

    :param first: seconds of the first rest; each further failure in a row doubles it.
    """

    def __init__(self, *, first: float) -> None:
        self._first = first
        self._troubles: dict[str, _Trouble] = {}

    def may_try(self, entity: str, *, now: float) -> bool:
        """Answer whether to send to ``entity`` now; after a rest, True for the first who asks.

        Who was answered True reports :meth:`succeeded`, :meth:`failed` or :meth:`untried`.
        """
        trouble = self._troubles.get(entity.casefold())
        if trouble is None:
            return True
        if trouble.tried or now < trouble.until:
            return False
        trouble.tried = True
        return True

    def due(self, entity: str, *, now: float) -> bool:
        """Answer whether ``entity`` does not rest, or its rest is over, without taking a turn."""
        trouble = self._troubles.get(entity.casefold())
        return trouble is None or (not trouble.tried and now >= trouble.until)

    def failed(self, entity: str, error: str, *, now: float, began: float) -> float:
        """Note a failure that may pass; answer the seconds of the rest that follows.

        What was on its way already when the entity failed belongs to the same failure.

        :param began: when the attempt did.
        """
        before = self._troubles.get(entity.casefold())
        if before is not None and began <= before.noted:
            return max(0.0, before.until - now)
        failures = 1 if before is None else before.failures + 1
        seconds = rest_seconds(failures, first=self._first)
        self._troubles[entity.casefold()] = _Trouble(error, failures, now, now + seconds)
        return seconds

    def refused(self, entity: str, error: str, *, now: float) -> None:
        """Note what no further try mends: ``entity`` is given up at once."""
        self._troubles[entity.casefold()] = _Trouble(error, FAILURES_BEFORE_GIVING_UP, now, inf)

    def pardon(self) -> None:
        """Forget who was given up for good: rights may have been given since."""
        self._troubles = {name: each for name, each in self._troubles.items() if each.until < inf}

    def succeeded(self, entity: str) -> None:
        """Note a success: the destination rests no more."""
        self._troubles.pop(entity.casefold(), None)

    def untried(self, entity: str, *, began: float) -> None:
        """Give back the turn that :meth:`may_try` gave at ``began``: nothing was tried."""
        trouble = self._troubles.get(entity.casefold())
        if trouble is not None and began > trouble.noted:
            trouble.tried = False

    def given_up(self, entity: str) -> bool:
        """Answer whether ``entity`` failed five times in a row, or for good: that ends a drain's patience."""
        trouble = self._troubles.get(entity.casefold())
        return trouble is not None and trouble.failures >= FAILURES_BEFORE_GIVING_UP

    def next_try(self) -> float | None:
        """Answer when the next rest ends, ``None`` when nobody is to be tried again."""
        return min((each.until for each in self._troubles.values() if each.until < inf), default=None)

    def errors(self) -> dict[str, str]:
        """Answer the last failure of each destination in trouble."""
        return {entity: each.error for entity, each in self._troubles.items()}
