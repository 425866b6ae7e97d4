"""Reconcile the ledger with the contents of the queues (SPEC section 9). Pure.

A :class:`History` contains everything known about one message id of one entity, :func:`classify` returns its
:class:`Verdict`.

=================  ==============================================================================
outcome            first rule that applies
=================  ==============================================================================
``UNRECORDED``     in a queue but not in the ledger: its sender has not written the record yet,
                   was killed before it could, or does not write this ledger. Not counted as sent
``DELIVERED``      every receiving entity has an active, scheduled or deferred copy
``WAITING``        a backlog queue has a copy
``DEAD_LETTERED``  a dead-letter queue has a copy: of a receiving entity, or of a backlog queue
``CONSUMED``       the primary accepted it, by a record of a send or of a move, by a copy in some receiving
                   entity, or by a receipt. That it is no longer in its queue means that it was received
                   or has expired
``SPOOLED``        a spool has it; or took it, did not pass it on, and was not examined
``LOST``           none of these: it was diverted or spooled, and is neither there nor recorded as moved
=================  ==============================================================================

The receiving entity of a queue is the queue itself; those of a topic are its subscriptions. A receipt is a consumer's
word, or a copy in a tap: a subscription that nothing receives from.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from servicebus_pair.core.ledger.incidents import Incident, incident_at
from servicebus_pair.core.model.events import Route


class Location(StrEnum):
    """Where a copy of a message is."""

    ACTIVE = "active"
    SCHEDULED = "scheduled"
    DEFERRED = "deferred"
    DEAD_LETTER = "dead-letter"
    BACKLOG = "backlog"
    BACKLOG_DEAD_LETTER = "backlog-dead-letter"
    SPOOL = "spool"
    RECEIPT = "receipt"


class Outcome(StrEnum):
    """Outcome of a message; see the table in this module."""

    DELIVERED = "delivered"
    WAITING = "waiting"
    DEAD_LETTERED = "dead-lettered"
    CONSUMED = "consumed"
    SPOOLED = "spooled"
    LOST = "lost"
    UNRECORDED = "unrecorded"


_LIVE: Final = frozenset({Location.ACTIVE, Location.SCHEDULED, Location.DEFERRED})
_ELSEWHERE: Final = frozenset({Location.BACKLOG, Location.BACKLOG_DEAD_LETTER, Location.SPOOL, Location.RECEIPT})


@dataclass(frozen=True, slots=True)
class Sent:
    """Ledger record of an acceptance.

    :param at: seconds since the Unix epoch.
    :param digest: of the body.
    :param spool: name of the spool that accepted it.
    """

    route: Route
    at: float
    queue: str | None = None
    run: str = ""
    digest: str | None = None
    spool: str | None = None


@dataclass(frozen=True, slots=True)
class Syphoned:
    """Ledger record of a move: from a backlog queue to the entity, or from the spool to either.

    :param queue: the backlog queue that it left, or that it came to from the spool.
    :param spool: name of the spool that it left.
    """

    at: float
    queue: str = ""
    route: Route = Route.PRIMARY
    spool: str | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """Copies of a message in a queue, subscription or backlog queue.

    :param place: path of the queue, ``topic/Subscriptions/name``, or path of the backlog queue.
    :param digest: of the body.
    """

    place: str
    location: Location
    count: int = 1
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class History:
    """Ledger records and copies of one message id of one entity."""

    message_id: str
    entity: str
    sent: tuple[Sent, ...] = ()
    syphoned: tuple[Syphoned, ...] = ()
    found: tuple[Found, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Classification of one message.

    :param route: route of its first acceptance; ``None`` if the ledger has no record.
    :param syphoned: whether a record says that it was moved out of the backlog.
    :param copies: number of existing copies: those in the backlog and, for a topic, in the subscription with the most.
    :param duplicates: copies beyond the first.
    :param duplicates_predicted: duplicates that the ledger explains, such as a retried run or a repeated move.
    :param wait_seconds: from the acceptance by the backlog to the entity; ``None`` without a completed wait.
    :param sent_at: first acceptance, in seconds since the Unix epoch.
    :param moved_at: first move out of the backlog.
    :param incident: number of the entity's incident in which it was first diverted.
    :param receipts: number of receipts.
    :param altered: a copy has a body that no sender recorded, or the body that a run recorded for an id that other runs
        have used as well is in none of the copies.
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
    receipts: int = 0
    altered: bool = False


def classify(
    history: History,
    *,
    receiving_entities: Sequence[str],
    incidents: Sequence[Incident] = (),
    examined_spools: Collection[str] = (),
    run: str | None = None,
) -> Verdict:
    """Classify one message.

    :param receiving_entities: path of the queue itself, or paths of all subscriptions of the topic.
    :param incidents: of the entity, in chronological order.
    :param examined_spools: names of the spools whose messages are among the copies.
    :param run: whose bodies are compared with those of the copies; those of all runs if not given.
    :raises ValueError: there is no receiving entity, or a copy was found in another one.
    """
    copies = _Copies.of(history, receiving_entities)
    duplicates = max(0, copies.total - 1)
    return Verdict(
        message_id=history.message_id,
        entity=history.entity,
        outcome=_outcome(history, copies, examined_spools),
        route=_first_route(history),
        syphoned=bool(_moves_home(history)),
        copies=copies.total,
        duplicates=duplicates,
        duplicates_predicted=min(duplicates, max(0, _expected_copies(history) - 1)),
        wait_seconds=_wait_seconds(history),
        sent_at=min((sent.at for sent in history.sent), default=None),
        moved_at=min((syphoned.at for syphoned in _moves_home(history)), default=None),
        incident=_incident_number(history, incidents),
        receipts=copies.receipts,
        altered=_is_altered(history, run),
    )


@dataclass(frozen=True, slots=True)
class _Copies:
    """Number of copies of a message, by receiving entity and in the backlog."""

    live: tuple[int, ...]
    dead: tuple[int, ...]
    waiting: int
    backlog_dead: int
    spooled: int
    receipts: int

    @classmethod
    def of(cls, history: History, receiving_entities: Sequence[str]) -> _Copies:
        if not receiving_entities:
            raise ValueError(f"entity {history.entity!r} has no receiving entity: name its queue or its subscriptions")
        live: Counter[str] = Counter()
        dead: Counter[str] = Counter()
        backlog: Counter[Location] = Counter()
        known = {path.casefold() for path in receiving_entities}
        for found in history.found:
            path = found.place.casefold()
            if found.location in _ELSEWHERE:
                backlog[found.location] += found.count
                continue
            if path not in known:
                raise ValueError(
                    f"message {history.message_id!r} was found in {found.place!r}, "
                    f"which is not a receiving entity of {history.entity!r}: these are {', '.join(receiving_entities)}"
                )
            (live if found.location in _LIVE else dead)[path] += found.count
        return cls(
            live=tuple(live[path.casefold()] for path in receiving_entities),
            dead=tuple(dead[path.casefold()] for path in receiving_entities),
            waiting=backlog[Location.BACKLOG],
            backlog_dead=backlog[Location.BACKLOG_DEAD_LETTER],
            spooled=backlog[Location.SPOOL],
            receipts=backlog[Location.RECEIPT],
        )

    @property
    def by_entity(self) -> tuple[int, ...]:
        return tuple(live + dead for live, dead in zip(self.live, self.dead, strict=True))

    @property
    def total(self) -> int:
        return max(self.by_entity) + self.waiting + self.backlog_dead + self.spooled


def _outcome(history: History, copies: _Copies, examined_spools: Collection[str]) -> Outcome:
    if not history.sent and not history.syphoned:
        return Outcome.UNRECORDED
    if all(copies.live):
        return Outcome.DELIVERED
    if copies.waiting:
        return Outcome.WAITING
    if any(copies.dead) or copies.backlog_dead:
        return Outcome.DEAD_LETTERED
    accepted = _moves_home(history) or any(sent.route is Route.PRIMARY for sent in history.sent)
    if accepted or any(copies.live) or copies.receipts:
        return Outcome.CONSUMED
    kept = {each.spool for each in history.sent if each.route is Route.SPOOLED}
    kept -= {each.spool for each in history.syphoned if each.route is Route.BACKLOG}
    return Outcome.SPOOLED if copies.spooled or kept.difference(examined_spools) else Outcome.LOST


def _moves_home(history: History) -> tuple[Syphoned, ...]:
    return tuple(each for each in history.syphoned if each.route is Route.PRIMARY)


def _first_route(history: History) -> Route | None:
    if history.sent:
        return min(history.sent, key=lambda sent: (sent.at, sent.route)).route
    # Moved without a record of its send: an older application put it into the backlog.
    return Route.BACKLOG if history.syphoned else None


def _expected_copies(history: History) -> int:
    """Return the copies that exist if every record is one acceptance and every move removes one copy."""
    direct, diverted, spooled = (sum(sent.route is route for sent in history.sent) for route in Route)
    home = len(_moves_home(history))
    # A batch that was moved out of the spool may be moved again if its process was killed.
    diverted += max(spooled, len(history.syphoned) - home)
    return direct + max(diverted, home)


def _wait_seconds(history: History) -> float | None:
    home = _moves_home(history)
    if not home or not history.sent or any(sent.route is Route.PRIMARY for sent in history.sent):
        return None
    arrived = min(each.at for each in home)
    # Different machines write the records; their clocks may differ by more than a short wait.
    return max(0.0, arrived - min(sent.at for sent in history.sent))


def _is_altered(history: History, run: str | None) -> bool:
    recorded = {sent.digest for sent in history.sent}
    # A consumer's receipt has no place and no body.
    found = {each.digest for each in history.found if each.place or each.digest is not None}
    if not found or recorded <= {None}:
        return False
    # Repeated in one run, a message may have another body, and its first copy may have been consumed.
    shared = len({sent.run for sent in history.sent}) > 1
    wanted = {sent.digest for sent in history.sent if run in (None, sent.run)}
    return not found <= recorded or (shared and not wanted <= found)


def _incident_number(history: History, incidents: Sequence[Incident]) -> int | None:
    diverted = [sent.at for sent in history.sent if sent.route is Route.BACKLOG]
    return incident_at(incidents, min(diverted)) if diverted else None
