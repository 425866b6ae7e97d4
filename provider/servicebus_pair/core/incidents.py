"""Incidents, as a ledger tells of them: spans in which an entity's sends were diverted (SPEC section 9). Pure.

A ledger knows when a message was accepted and where, not when an outage began. So an incident of an entity lasts from
one acceptance by the backlog to another, and a new one begins with one that comes more than :data:`QUIET_SECONDS`
after the last, with an acceptance by the entity between them. Processes that learn of an outage one after another
make one incident, and so do few messages in a long outage.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

__all__ = ["QUIET_SECONDS", "Incident", "Slice", "incident_at", "incidents"]

QUIET_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Slice:
    """What an entity's ledger tells of a time of at most :data:`QUIET_SECONDS`; times in seconds since the Unix epoch.

    :param diverted: the first and the last acceptance by the backlog; ``None`` when there was none.
    :param direct: the same, by the entity itself.
    """

    diverted: tuple[float, float] | None
    direct: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Incident:
    """One incident of one entity.

    :param number: from 1, in the order of time.
    :param began: when the first message was diverted, seconds since the Unix epoch.
    :param ended: when the last one was.
    """

    number: int
    began: float
    ended: float


def incidents(slices: Iterable[Slice]) -> Iterator[Incident]:
    """Yield the incidents of one entity.

    :param slices: all that its ledger tells, in the order of time; they do not overlap.
    """
    number, began, ended, back = 0, 0.0, 0.0, False
    for each in slices:
        if each.diverted is None:
            back = back or each.direct is not None
            continue
        first, last = each.diverted
        back = back or (each.direct is not None and each.direct[0] < first)
        if not number or (back and first - ended > QUIET_SECONDS):
            if number:
                yield Incident(number, began, ended)
            number, began = number + 1, first
        ended = last
        back = each.direct is not None and each.direct[1] > last
    if number:
        yield Incident(number, began, ended)


def incident_at(found: Sequence[Incident], at: float) -> int | None:
    """Answer the number of the incident in which a message was diverted.

    :param found: the incidents of its entity, in the order of time.
    :param at: when the backlog accepted it.
    """
    index = bisect_right(found, at, key=attrgetter("began")) - 1
    return found[index].number if index >= 0 and at <= found[index].ended else None
