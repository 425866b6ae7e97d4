"""Incidents derived from a ledger: time spans in which an entity's sends were diverted (SPEC section 9). Pure.

A ledger records when and where a message was accepted, not when an outage began. An incident therefore lasts from the
first to the last acceptance by the backlog. A new one begins when the next diverted message comes more than
:data:`INCIDENT_GAP_SECONDS` later and the entity itself accepted a message in between. So processes that detect an
outage at different times share one incident, and so do a few messages in a long outage.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final

INCIDENT_GAP_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class LedgerSlice:
    """Acceptances of one entity within at most :data:`INCIDENT_GAP_SECONDS`; times in seconds since the Unix epoch.

    :param diverted: times of the first and last acceptance by the backlog; ``None`` when there was none.
    :param direct: the same for acceptances by the entity itself.
    """

    diverted: tuple[float, float] | None
    direct: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Incident:
    """An incident of one entity.

    :param number: from 1, in chronological order.
    :param began: when the first message was diverted, in seconds since the Unix epoch.
    :param ended: when the last message was diverted.
    """

    number: int
    began: float
    ended: float


def find_incidents(slices: Iterable[LedgerSlice]) -> Iterator[Incident]:
    """Yield the incidents of one entity.

    :param slices: all of the entity's ledger, in chronological order and without overlaps.
    """
    incident: Incident | None = None
    recovered = False
    for each in slices:
        if each.diverted is None:
            recovered = recovered or each.direct is not None
            continue
        first, last = each.diverted
        recovered = recovered or (each.direct is not None and each.direct[0] < first)
        if incident is None:
            incident = Incident(1, first, last)
        elif recovered and first - incident.ended > INCIDENT_GAP_SECONDS:
            yield incident
            incident = Incident(incident.number + 1, first, last)
        else:
            incident = replace(incident, ended=last)
        recovered = each.direct is not None and each.direct[1] > last
    if incident is not None:
        yield incident


def incident_at(incidents: Sequence[Incident], at: float) -> int | None:
    """Return the number of the incident in which a message was diverted, or ``None``.

    :param incidents: of the message's entity, in chronological order.
    :param at: when the backlog accepted the message.
    """
    index = bisect_right(incidents, at, key=attrgetter("began")) - 1
    return incidents[index].number if index >= 0 and at <= incidents[index].ended else None
