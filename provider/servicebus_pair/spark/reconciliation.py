"""What a reconciliation found, as values. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from servicebus_pair.core.costs import Operations, PriceList
from servicebus_pair.core.incidents import Incident
from servicebus_pair.core.reconcile import Totals

__all__ = ["LedgerCost", "LedgerFigures", "Order", "Reconciled", "Reconciliation", "Waits"]

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class LedgerFigures:
    """How much the ledger holds: records, and lines that a killed writer left unfinished."""

    records: int
    torn: int


@dataclass(frozen=True, slots=True)
class Waits:
    """How long diverted messages waited, in seconds; ``None`` when none did."""

    median: float | None = None
    p95: float | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """How sessions arrived.

    :param sessions: of a topic, those of each subscription.
    :param out_of_order: messages that a later one of their session has overtaken.
    """

    sessions: int = 0
    session_messages: int = 0
    sessions_out_of_order: int = 0
    out_of_order: int = 0

    def __add__(self, other: Order) -> Order:
        return Order(
            *(mine + theirs for mine, theirs in zip(asdict(self).values(), asdict(other).values(), strict=True))
        )


@dataclass(frozen=True, slots=True)
class Reconciled:
    """One incident of an entity: what became of the messages that were first diverted in it.

    :param home_at: when the last of them that was moved had left the backlog; ``None`` when none was.
    """

    entity: str
    incident: Incident
    totals: Totals
    waits: Waits
    home_at: float | None
    out_of_order: int

    def to_json(self) -> dict[str, Any]:
        """Answer all of it by name, flat."""
        return {
            "entity": self.entity,
            **asdict(self.incident),
            "home_at": self.home_at,
            **asdict(self.totals),
            **_waits(self.waits),
            "out_of_order": self.out_of_order,
        }


@dataclass(frozen=True, slots=True)
class LedgerCost:
    """What the records stand for: a lower bound of what was billed.

    :param amount: of all months, each as if nothing else were billed.
    """

    operations: Operations
    amount: str
    prices: PriceList

    def to_json(self) -> dict[str, Any]:
        """Answer operations first, money second."""
        return {
            "operations": {name: count for name, count in asdict(self.operations).items() if count},
            "total": self.operations.total,
            "amount": self.amount,
            "currency": self.prices.currency,
            "prices_as_of": self.prices.as_of.isoformat(),
        }


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What one reconciliation found.

    :param entities: totals by folded entity path.
    :param incidents: those in which messages were diverted that this judged.
    :param absent: backlog queues of the pair that do not exist.
    :param unreadable: messages that the SDK cannot decode, by the place that holds them, dead letters included.
    :param pings: pings that the service keeps instead of dropping.
    :param unexamined: facts about entities that were not named, by entity; nothing is said of them.
    :param unaddressed: messages in the backlog that name no entity.
    :param examples: some messages of each outcome that asks for attention, some duplicates, some out of order.
    """

    run: str | None
    entities: Mapping[str, Totals]
    waits: Mapping[str, Waits]
    order: Mapping[str, Order]
    incidents: Sequence[Reconciled]
    cost: LedgerCost
    ledger: LedgerFigures
    absent: tuple[str, ...]
    unreadable: Mapping[str, int]
    pings: int
    unexamined: Mapping[str, int]
    unaddressed: int
    examples: Mapping[str, tuple[str, ...]]
    seconds: float

    @property
    def totals(self) -> Totals:
        """All entities together."""
        return sum(self.entities.values(), Totals())

    def by_entity(self) -> dict[str, dict[str, Any]]:
        """Answer a row of figures for each entity."""
        return {
            entity: {**asdict(total), **_waits(self.waits[entity]), **asdict(self.order[entity])}
            for entity, total in self.entities.items()
        }

    def to_json(self) -> dict[str, Any]:
        """The form of ``summary.json``."""
        return {
            "version": _VERSION,
            "job": "reconcile",
            "run": self.run,
            "totals": asdict(self.totals) | asdict(sum(self.order.values(), Order())),
            "entities": self.by_entity(),
            "incidents": [each.to_json() for each in self.incidents],
            "cost": self.cost.to_json(),
            "ledger": asdict(self.ledger),
            "absent_backlog_queues": list(self.absent),
            "unreadable": dict(self.unreadable),
            "pings": self.pings,
            "unexamined": dict(self.unexamined),
            "unaddressed": self.unaddressed,
            "examples": {kind: list(messages) for kind, messages in self.examples.items()},
            "seconds": self.seconds,
        }


def _waits(waits: Waits) -> dict[str, float | None]:
    return {"wait_median_seconds": waits.median, "wait_p95_seconds": waits.p95}
