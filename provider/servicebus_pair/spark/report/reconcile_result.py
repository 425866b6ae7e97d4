"""The result of a reconciliation, as value objects. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from servicebus_pair.core import Operations, PriceList
from servicebus_pair.core.ledger import Incident, Judgement, Totals

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class LedgerCounts:
    """Number of records in the ledger, and of incomplete lines left by killed writers."""

    records: int
    torn: int


@dataclass(frozen=True, slots=True)
class WaitPercentiles:
    """Percentiles of the wait of diverted messages, in seconds; ``None`` if none waited."""

    median: float | None = None
    p95: float | None = None


@dataclass(frozen=True, slots=True)
class SessionOrder:
    """Counts of session messages and of violations of session order.

    :param sessions: for a topic, counted in each subscription.
    :param out_of_order: messages that arrived after a later message of their session.
    """

    sessions: int = 0
    session_messages: int = 0
    sessions_out_of_order: int = 0
    out_of_order: int = 0

    def __add__(self, other: SessionOrder) -> SessionOrder:
        return SessionOrder(
            *(mine + theirs for mine, theirs in zip(asdict(self).values(), asdict(other).values(), strict=True))
        )


@dataclass(frozen=True, slots=True)
class IncidentResult:
    """One incident of an entity, and the outcome of the messages that were first diverted in it.

    :param home_at: when the last of these messages was moved out of the backlog; ``None`` if none was.
    """

    entity: str
    incident: Incident
    totals: Totals
    waits: WaitPercentiles
    home_at: float | None
    out_of_order: int

    def to_json(self) -> dict[str, Any]:
        """Return all fields in one flat object."""
        return {
            "entity": self.entity,
            **asdict(self.incident),
            "home_at": self.home_at,
            **asdict(self.totals),
            **_wait_fields(self.waits),
            "out_of_order": self.out_of_order,
        }


@dataclass(frozen=True, slots=True)
class LedgerCost:
    """Operations and cost implied by the ledger's records, a lower bound.

    :param amount: sum over all months, each billed as if there were no other operations.
    """

    operations: Operations
    amount: str
    prices: PriceList

    def to_json(self) -> dict[str, Any]:
        """Return operations and amount."""
        return {
            "operations": {name: count for name, count in asdict(self.operations).items() if count},
            "total": self.operations.total,
            "amount": self.amount,
            "currency": self.prices.currency,
            "prices_as_of": self.prices.as_of.isoformat(),
        }


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The result of one reconciliation.

    :param reasons: why it is not proven, or what is lost.
    :param entities: totals by lower-case entity path.
    :param incidents: incidents in which classified messages were diverted.
    :param absent: backlog queues of the pair that do not exist.
    :param unreadable: number of messages that the SDK cannot decode, by queue, including dead letters.
    :param pings: pings that the service kept instead of dropping.
    :param unexamined: recorded messages of entities that were not selected, by entity.
    :param strangers: messages in the backlog for such entities, by entity.
    :param unaddressed: backlog messages without a destination.
    :param examples: some messages of each outcome but delivered, some duplicates, some out of order.
    """

    run: str | None
    judgement: Judgement
    reasons: tuple[str, ...]
    entities: Mapping[str, Totals]
    waits: Mapping[str, WaitPercentiles]
    order: Mapping[str, SessionOrder]
    incidents: Sequence[IncidentResult]
    cost: LedgerCost
    ledger: LedgerCounts
    absent: tuple[str, ...]
    unreadable: Mapping[str, int]
    pings: int
    unexamined: Mapping[str, int]
    strangers: Mapping[str, int]
    unaddressed: int
    examples: Mapping[str, tuple[str, ...]]
    seconds: float

    @property
    def totals(self) -> Totals:
        """Totals over all entities."""
        return sum(self.entities.values(), Totals())

    def by_entity(self) -> dict[str, dict[str, Any]]:
        """Return the figures of each entity."""
        return {
            entity: {**asdict(total), **_wait_fields(self.waits[entity]), **asdict(self.order[entity])}
            for entity, total in self.entities.items()
        }

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``summary.json``."""
        return {
            "version": _VERSION,
            "job": "reconcile",
            "run": self.run,
            "judgement": str(self.judgement),
            "reasons": list(self.reasons),
            "totals": asdict(self.totals) | asdict(sum(self.order.values(), SessionOrder())),
            "entities": self.by_entity(),
            "incidents": [each.to_json() for each in self.incidents],
            "cost": self.cost.to_json(),
            "ledger": asdict(self.ledger),
            "absent_backlog_queues": list(self.absent),
            "unreadable": dict(self.unreadable),
            "pings": self.pings,
            "unexamined": dict(self.unexamined),
            "strangers": dict(self.strangers),
            "unaddressed": self.unaddressed,
            "examples": {kind: list(messages) for kind, messages in self.examples.items()},
            "seconds": self.seconds,
        }


def _wait_fields(waits: WaitPercentiles) -> dict[str, float | None]:
    return {"wait_median_seconds": waits.median, "wait_p95_seconds": waits.p95}
