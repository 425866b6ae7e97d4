"""What operations cost (SPEC section 8): operations first, money second. Pure.

Every interaction with the service is an operation for each 64 KB or part of them: a send, a
receive (an empty one too), a settlement, a lock renewal, a ping, a management call. Messages of a
batch are counted one by one, which is the dearest reading of the service's price page. Prices
change: they are configuration, with the day on which they were read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Final

from servicebus_pair.core.errors import ConfigurationError

__all__ = [
    "BILLED_BYTES",
    "STANDARD_PRICES",
    "Bill",
    "Operations",
    "PriceList",
    "PriceTier",
    "bill",
    "idle_syphon",
    "pinging",
    "syphoned",
]

BILLED_BYTES: Final = 65_536
_MILLION: Final = 1_000_000
_CENT: Final = Decimal("0.01")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """Counts of operations, of both namespaces.

    :param sends: messages sent to entities of the primary, by applications and by the syphon.
    :param diverts: messages sent to backlog queues.
    :param receives: messages received.
    :param empty_receives: receives that ended without a message.
    :param settlements: messages completed, abandoned or dead-lettered.
    :param management_calls: peeking, scheduling, cancelling, administration.
    :param further_increments: 64 KB beyond the first of a message, sent or received.
    """

    sends: int = 0
    diverts: int = 0
    pings: int = 0
    receives: int = 0
    empty_receives: int = 0
    settlements: int = 0
    lock_renewals: int = 0
    management_calls: int = 0
    further_increments: int = 0

    @property
    def total(self) -> int:
        """All of them: what is billed."""
        return sum(getattr(self, each.name) for each in fields(self))

    def __add__(self, other: Operations) -> Operations:
        return Operations(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})

    def __sub__(self, other: Operations) -> Operations:
        return Operations(**{each.name: getattr(self, each.name) - getattr(other, each.name) for each in fields(self)})


@dataclass(frozen=True, slots=True)
class PriceTier:
    """From how many operations a month on a price holds.

    :param beyond: operations before it.
    :param per_million: price of a million operations.
    """

    beyond: int
    per_million: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """Prices of operations, as of a day.

    :param as_of: when they were read.
    :param tiers: ascending; operations before the first are included in the base charge.
    :raises ConfigurationError: no tier, or tiers that do not ascend.
    """

    as_of: date
    currency: str
    tiers: tuple[PriceTier, ...]

    def __post_init__(self) -> None:
        starts = [tier.beyond for tier in self.tiers]
        if not starts or starts != sorted(set(starts)) or starts[0] < 0:
            raise ConfigurationError(f"tiers begin at {starts}: there must be one or more, ascending from 0 or more")


# List prices of the Standard tier as seen; undated on their page. Bring your own for a real bill.
STANDARD_PRICES: Final = PriceList(
    as_of=date(2026, 11, 20),
    currency="USD",
    tiers=(
        PriceTier(13 * _MILLION, Decimal("0.80")),
        PriceTier(100 * _MILLION, Decimal("0.50")),
        PriceTier(2_500 * _MILLION, Decimal("0.20")),
    ),
)


@dataclass(frozen=True, slots=True)
class Bill:
    """Operations of a month, and what they cost.

    :param billable: operations beyond those that the base charge includes.
    :param amount: rounded to a hundredth.
    """

    operations: Operations
    billable: int
    amount: Decimal
    prices: PriceList


def bill(operations: Operations, prices: PriceList = STANDARD_PRICES, *, before: int = 0) -> Bill:
    """Answer what a month's operations cost.

    :param before: operations of the same month that are not among these, such as other applications'.
    :raises ConfigurationError: ``before`` is negative.
    """
    if before < 0:
        raise ConfigurationError(f"before is {before}: allowed is 0 or more")
    until = before + operations.total
    amount = _price(until, prices.tiers) - _price(before, prices.tiers)
    first = prices.tiers[0].beyond
    billable = max(0, until - first) - max(0, before - first)
    return Bill(operations, billable, amount.quantize(_CENT, ROUND_HALF_UP), prices)


def idle_syphon(*, queues: int, long_poll: timedelta, period: timedelta) -> Operations:
    """Answer what a continuous syphon over empty backlog queues does: each poll is an empty receive."""
    return Operations(empty_receives=queues * (period // long_poll))


def pinging(*, outage: timedelta, interval: timedelta) -> Operations:
    """Answer what one entity's pings do in an outage, by all processes that share a store together."""
    return Operations(pings=outage // interval)


def syphoned(messages: int, *, size_bytes: int) -> Operations:
    """Answer what messages cost that take the way through the backlog, to the end of their reception.

    Each is sent to the backlog, received there, sent to the primary, settled in the backlog, and
    received and settled on the primary.

    :param size_bytes: of each message.
    """
    moves = 4
    return Operations(
        diverts=messages,
        receives=2 * messages,
        sends=messages,
        settlements=2 * messages,
        further_increments=moves * messages * (max(0, size_bytes - 1) // BILLED_BYTES),
    )


def _price(operations: int, tiers: Sequence[PriceTier]) -> Decimal:
    ends = [tier.beyond for tier in tiers[1:]] + [max(operations, tiers[-1].beyond)]
    return sum(
        (
            tier.per_million * max(0, min(operations, end) - tier.beyond) / _MILLION
            for tier, end in zip(tiers, ends, strict=True)
        ),
        Decimal(0),
    )
