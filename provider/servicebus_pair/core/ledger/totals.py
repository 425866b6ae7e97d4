"""Sums over the verdicts on messages. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from servicebus_pair.core.ledger.reconcile import Outcome, Verdict
from servicebus_pair.core.model.events import Route


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over verdicts.

    Fields count messages, except ``duplicates`` (extra copies) and the waits (seconds). Invariants:
    ``sent == primary + diverted == delivered + waiting + dead_lettered + consumed + spooled + lost`` and
    ``messages == sent + unrecorded``.

    :param sent: messages with a ledger record.
    :param primary: messages first accepted by the entity itself.
    :param diverted: messages first accepted by the backlog, or by the spool.
    :param syphoned: messages moved by a syphon.
    :param consumed_unseen: consumed messages without a receipt.
    :param altered: messages of which a copy has another body.
    :param waited: diverted messages with a known wait; ``wait_seconds`` is the sum of their waits.
    """

    messages: int = 0
    sent: int = 0
    primary: int = 0
    diverted: int = 0
    syphoned: int = 0
    delivered: int = 0
    waiting: int = 0
    dead_lettered: int = 0
    consumed: int = 0
    consumed_unseen: int = 0
    spooled: int = 0
    lost: int = 0
    altered: int = 0
    unrecorded: int = 0
    duplicates: int = 0
    duplicates_predicted: int = 0
    waited: int = 0
    wait_seconds: float = 0.0
    longest_wait_seconds: float = 0.0

    @classmethod
    def of(cls, verdict: Verdict) -> Totals:
        """Return the totals of one verdict."""
        wait = 0.0 if verdict.wait_seconds is None else verdict.wait_seconds
        return cls(
            messages=1,
            sent=int(verdict.route is not None),
            primary=int(verdict.route is Route.PRIMARY),
            diverted=int(verdict.route in (Route.BACKLOG, Route.SPOOLED)),
            syphoned=int(verdict.syphoned),
            delivered=int(verdict.outcome is Outcome.DELIVERED),
            waiting=int(verdict.outcome is Outcome.WAITING),
            dead_lettered=int(verdict.outcome is Outcome.DEAD_LETTERED),
            consumed=int(verdict.outcome is Outcome.CONSUMED),
            consumed_unseen=int(verdict.outcome is Outcome.CONSUMED and not verdict.receipts),
            spooled=int(verdict.outcome is Outcome.SPOOLED),
            lost=int(verdict.outcome is Outcome.LOST),
            altered=int(verdict.altered),
            unrecorded=int(verdict.outcome is Outcome.UNRECORDED),
            duplicates=verdict.duplicates,
            duplicates_predicted=verdict.duplicates_predicted,
            waited=int(verdict.wait_seconds is not None),
            wait_seconds=wait,
            longest_wait_seconds=wait,
        )

    @classmethod
    def of_all(cls, verdicts: Iterable[Verdict]) -> Totals:
        """Return the sum over ``verdicts``."""
        return sum((cls.of(verdict) for verdict in verdicts), cls())

    def __add__(self, other: Totals) -> Totals:
        sums = {each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)}
        sums["longest_wait_seconds"] = max(self.longest_wait_seconds, other.longest_wait_seconds)
        return Totals(**sums)
