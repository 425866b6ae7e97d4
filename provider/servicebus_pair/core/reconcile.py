"""What became of each message: the ledger's records against what the queues hold (SPEC section 9).

Pure rules over frozen values; a Spark job and the tests share them. One :class:`History` holds all
that is known of one message id of one entity, :func:`judge` answers its :class:`Verdict`, and
:class:`Totals` add up.

=================  ==============================================================================
outcome            rule, the first that holds
=================  ==============================================================================
``UNRECORDED``     the queues hold it, the ledger does not know it: its sender has not written the
                   record yet (a publisher that is active while the ledger is read), died before it
                   could, or is not ours. Never counted as sent, delivered or lost
``DELIVERED``      every place of the entity holds a copy: active, scheduled or deferred
``WAITING``        a backlog queue holds a copy
``DEAD_LETTERED``  every place holds a copy, some only in its dead-letter queue; or a backlog
                   queue has dead-lettered it
``LOST``           none of these
=================  ==============================================================================

A queue is its own single place; the places of a topic are its subscriptions. The rules hold for
entities from which nothing was received, and nothing has expired, since the sends.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final

from servicebus_pair.core.events import Route
from servicebus_pair.core.incidents import Incident, incident_at

__all__ = ["Found", "History", "Location", "Outcome", "Sent", "Syphoned", "Totals", "Verdict", "judge"]


class Location(StrEnum):
    """Where a copy of a message was found."""

    ACTIVE = "active"
    SCHEDULED = "scheduled"
    DEFERRED = "deferred"
    DEAD_LETTER = "dead-letter"
    BACKLOG = "backlog"
    BACKLOG_DEAD_LETTER = "backlog-dead-letter"


class Outcome(StrEnum):
    """What became of a message; see the table of this module."""

    DELIVERED = "delivered"
    WAITING = "waiting"
    DEAD_LETTERED = "dead-lettered"
    LOST = "lost"
    UNRECORDED = "unrecorded"


_LIVE: Final = frozenset({Location.ACTIVE, Location.SCHEDULED, Location.DEFERRED})
_IN_BACKLOG: Final = frozenset({Location.BACKLOG, Location.BACKLOG_DEAD_LETTER})


@dataclass(frozen=True, slots=True)
class Sent:
    """The ledger's record of one acceptance; ``at`` in seconds since the Unix epoch."""

    route: Route
    at: float
    queue: str | None = None
    run: str = ""


@dataclass(frozen=True, slots=True)
class Syphoned:
    """The ledger's record of one move from a backlog queue to the entity."""

    at: float
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """Copies of the message that a queue, subscription or backlog queue holds.

    :param place: path of the queue, ``topic/Subscriptions/name``, or path of the backlog queue.
    """

    place: str
    location: Location
    count: int = 1


@dataclass(frozen=True, slots=True)
class History:
    """All that is known of one message id of one entity."""

    message_id: str
    entity: str
    sent: tuple[Sent, ...] = ()
    syphoned: tuple[Syphoned, ...] = ()
    found: tuple[Found, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one message.

    :param route: where its first acceptance went; ``None`` when the ledger does not know it.
    :param syphoned: a record says that it was moved out of the backlog.
    :param copies: copies that exist now; in a topic, those of the subscription that holds most,
        and those in the backlog.
    :param duplicates: copies beyond the first.
    :param duplicates_predicted: how many of these the ledger explains: accepted more than once, as
        by a run that was tried again, or syphoned more than once.
    :param wait_seconds: from the acceptance by the backlog to the entity; ``None`` for a message
        that did not wait or whose wait is not over.
    :param sent_at: its first acceptance, seconds since the Unix epoch.
    :param moved_at: when it was first moved out of the backlog.
    :param incident: number of the entity's incident in which it was first diverted.
    """

    message_id: str
    entity: str
    outcome: Outcome
    route: Route | None
    syphoned: bool
    copies: int
    duplicates: int
    duplicates_predicted: int
    wait_seconds: float | None
    sent_at: float | None
    moved_at: float | None
    incident: int | None


def judge(history: History, *, places: Sequence[str], incidents: Sequence[Incident] = ()) -> Verdict:
    """Answer what became of one message.

    :param places: where the entity's messages arrive: its own path for a queue, the paths of its
        subscriptions for a topic. Each must hold a copy.
    :param incidents: those of the entity, in the order of time.
    :raises ValueError: no place is given, or a copy was found in a place that is none of the entity.
    """
    copies = _Copies.of(history, places)
    extra = max(0, copies.total - 1)
    return Verdict(
        message_id=history.message_id,
        entity=history.entity,
        outcome=_outcome(history, copies),
        route=_first_route(history),
        syphoned=bool(history.syphoned),
        copies=copies.total,
        duplicates=extra,
        duplicates_predicted=min(extra, max(0, _expected_copies(history) - 1)),
        wait_seconds=_wait(history),
        sent_at=min((sent.at for sent in history.sent), default=None),
        moved_at=min((syphoned.at for syphoned in history.syphoned), default=None),
        incident=_incident(history, incidents),
    )


@dataclass(frozen=True, slots=True)
class _Copies:
    """Copies of one message: per place of its entity, and in the backlog."""

    live: tuple[int, ...]
    dead: tuple[int, ...]
    waiting: int
    buried: int

    @classmethod
    def of(cls, history: History, places: Sequence[str]) -> _Copies:
        if not places:
            raise ValueError(f"entity {history.entity!r} has no place: name its queue or its subscriptions")
        live: Counter[str] = Counter()
        dead: Counter[str] = Counter()
        backlog: Counter[Location] = Counter()
        known = {place.casefold() for place in places}
        for found in history.found:
            place = found.place.casefold()
            if found.location in _IN_BACKLOG:
                backlog[found.location] += found.count
                continue
            if place not in known:
                raise ValueError(
                    f"message {history.message_id!r} was found in {found.place!r}, "
                    f"which is no place of {history.entity!r}: these are {', '.join(places)}"
                )
            (live if found.location in _LIVE else dead)[place] += found.count
        return cls(
            live=tuple(live[place.casefold()] for place in places),
            dead=tuple(dead[place.casefold()] for place in places),
            waiting=backlog[Location.BACKLOG],
            buried=backlog[Location.BACKLOG_DEAD_LETTER],
        )

    @property
    def in_places(self) -> tuple[int, ...]:
        return tuple(live + dead for live, dead in zip(self.live, self.dead, strict=True))

    @property
    def total(self) -> int:
        return max(self.in_places) + self.waiting + self.buried


def _outcome(history: History, copies: _Copies) -> Outcome:
    if not history.sent and not history.syphoned:
        return Outcome.UNRECORDED
    if all(copies.live):
        return Outcome.DELIVERED
    if copies.waiting:
        return Outcome.WAITING
    if all(copies.in_places) or copies.buried:
        return Outcome.DEAD_LETTERED
    return Outcome.LOST


def _first_route(history: History) -> Route | None:
    if history.sent:
        return min(history.sent, key=lambda sent: sent.at).route
    # Syphoned without a record of its sending: an older application put it into the backlog.
    return Route.BACKLOG if history.syphoned else None


def _expected_copies(history: History) -> int:
    """Copies that exist if every record is one acceptance and every move takes one copy with it."""
    direct = sum(sent.route is Route.PRIMARY for sent in history.sent)
    diverted = len(history.sent) - direct
    return direct + max(diverted, len(history.syphoned))


def _wait(history: History) -> float | None:
    if not history.syphoned or any(sent.route is Route.PRIMARY for sent in history.sent):
        return None
    if not history.sent:
        return None
    arrived = min(syphoned.at for syphoned in history.syphoned)
    # Two machines write the records: their clocks may disagree by more than a short wait.
    return max(0.0, arrived - min(sent.at for sent in history.sent))


def _incident(history: History, incidents: Sequence[Incident]) -> int | None:
    diverted = [sent.at for sent in history.sent if sent.route is Route.BACKLOG]
    return incident_at(incidents, min(diverted)) if diverted else None


@dataclass(frozen=True, slots=True)
class Totals:
    """Verdicts in numbers, which add up.

    All count messages, except ``duplicates`` (extra copies) and the waits (seconds). It always
    holds that ``sent == primary + diverted == delivered + waiting + dead_lettered + lost`` and
    ``messages == sent + unrecorded``.

    :param sent: messages that the ledger knows.
    :param primary: those whose first acceptance was by the entity itself.
    :param diverted: those whose first acceptance was by the backlog.
    :param syphoned: those that a syphon moved.
    :param waited: diverted messages with a known wait, over which ``wait_seconds`` is the sum.
    """

    messages: int = 0
    sent: int = 0
    primary: int = 0
    diverted: int = 0
    syphoned: int = 0
    delivered: int = 0
    waiting: int = 0
    dead_lettered: int = 0
    lost: int = 0
    unrecorded: int = 0
    duplicates: int = 0
    duplicates_predicted: int = 0
    waited: int = 0
    wait_seconds: float = 0.0
    longest_wait_seconds: float = 0.0

    @classmethod
    def of(cls, verdict: Verdict) -> Totals:
        """Answer the totals of one verdict."""
        wait = 0.0 if verdict.wait_seconds is None else verdict.wait_seconds
        return cls(
            messages=1,
            sent=int(verdict.route is not None),
            primary=int(verdict.route is Route.PRIMARY),
            diverted=int(verdict.route is Route.BACKLOG),
            syphoned=int(verdict.syphoned),
            delivered=int(verdict.outcome is Outcome.DELIVERED),
            waiting=int(verdict.outcome is Outcome.WAITING),
            dead_lettered=int(verdict.outcome is Outcome.DEAD_LETTERED),
            lost=int(verdict.outcome is Outcome.LOST),
            unrecorded=int(verdict.outcome is Outcome.UNRECORDED),
            duplicates=verdict.duplicates,
            duplicates_predicted=verdict.duplicates_predicted,
            waited=int(verdict.wait_seconds is not None),
            wait_seconds=wait,
            longest_wait_seconds=wait,
        )

    @classmethod
    def of_all(cls, verdicts: Iterable[Verdict]) -> Totals:
        """Answer the sum over ``verdicts``."""
        return sum((cls.of(verdict) for verdict in verdicts), cls())

    def __add__(self, other: Totals) -> Totals:
        sums = {each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)}
        sums["longest_wait_seconds"] = max(self.longest_wait_seconds, other.longest_wait_seconds)
        return Totals(**sums)
