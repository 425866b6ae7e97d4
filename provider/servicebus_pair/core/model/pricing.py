"""Cost of operations at a dated price list (SPEC section 8). Pure.

Every interaction with the service is one operation per started 64 KB: a send, a receive (also an empty one), a
settlement, a lock renewal, a ping, a management call. The messages of a batch are counted one by one, which is the most
expensive reading of the service's price page. Prices change, so they are configuration with a date.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any, Final

from servicebus_pair.core.model.errors import ConfigurationError

__all__ = [
    "BILLED_BYTES",
    "STANDARD_PRICES",
    "Bill",
    "Operations",
    "PriceList",
    "PriceTier",
    "backlog_operations",
    "bill",
    "further_increments",
    "idle_syphon_operations",
    "ping_operations",
    "read_prices",
]

BILLED_BYTES: Final = 65_536
_MILLION: Final = 1_000_000
_CENT: Final = Decimal("0.01")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operations:
    """Operation counts over both namespaces.

    :param sends: messages sent to entities of the primary, by applications and by the syphon.
    :param diverts: messages sent to backlog queues.
    :param receives: messages received.
    :param empty_receives: receives that returned no message.
    :param settlements: messages completed, abandoned or dead-lettered.
    :param management_calls: peeks, scheduling, cancelling, administration.
    :param further_increments: each 64 KB beyond the first of a message sent or received.
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
        """Number of billed operations."""
        return sum(getattr(self, each.name) for each in fields(self))

    def __add__(self, other: Operations) -> Operations:
        return Operations(**{each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self)})

    def __sub__(self, other: Operations) -> Operations:
        return Operations(**{each.name: getattr(self, each.name) - getattr(other, each.name) for each in fields(self)})


@dataclass(frozen=True, slots=True)
class PriceTier:
    """Price of the operations of a month beyond a threshold.

    :param beyond: number of operations before this tier.
    :param per_million: price of one million operations.
    """

    beyond: int
    per_million: Decimal


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceList:
    """Dated prices of operations.

    :param as_of: date of the prices.
    :param tiers: in ascending order; operations before the first tier are included in the base charge.
    :raises ConfigurationError: there is no tier, or tiers are not in ascending order.
    """

    as_of: date
    currency: str
    tiers: tuple[PriceTier, ...]

    def __post_init__(self) -> None:
        starts = [tier.beyond for tier in self.tiers]
        if not starts or starts != sorted(set(starts)) or starts[0] < 0:
            raise ConfigurationError(f"tiers begin at {starts}: there must be one or more, ascending from 0 or more")


# List prices of the Standard tier on that day; the price page has no date. Use your own prices for a real bill.
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
    """Operations of a month and their cost.

    :param billable: operations beyond those included in the base charge.
    :param amount: price, rounded to two decimals.
    """

    operations: Operations
    billable: int
    amount: Decimal
    prices: PriceList


def bill(operations: Operations, prices: PriceList = STANDARD_PRICES, *, before: int = 0) -> Bill:
    """Return the cost of a month's operations.

    :param before: other operations of the same month, such as those of other applications.
    :raises ConfigurationError: ``before`` is negative.
    """
    if before < 0:
        raise ConfigurationError(f"before is {before}: allowed is 0 or more")
    until = before + operations.total
    amount = _price(until, prices.tiers) - _price(before, prices.tiers)
    first = prices.tiers[0].beyond
    billable = max(0, until - first) - max(0, before - first)
    return Bill(operations, billable, amount.quantize(_CENT, ROUND_HALF_UP), prices)


def further_increments(size_bytes: int) -> int:
    """Return how many started 64 KB of a message are billed beyond the first."""
    return (size_bytes - 1) // BILLED_BYTES if size_bytes else 0


def idle_syphon_operations(*, queues: int, long_poll: timedelta, period: timedelta) -> Operations:
    """Return the operations of a continuous syphon on empty backlog queues: each poll is an empty receive."""
    return Operations(empty_receives=queues * (period // long_poll))


def ping_operations(*, outage: timedelta, interval: timedelta) -> Operations:
    """Return the pings of one entity in an outage, over all processes that share a health store."""
    return Operations(pings=outage // interval)


def backlog_operations(messages: int, *, size_bytes: int) -> Operations:
    """Return the operations of messages that pass through the backlog, until their consumer has settled them.

    Each is sent to the backlog, received there, sent to the primary, settled in the backlog, and received and settled
    on the primary.

    :param size_bytes: size of each message.
    """
    transfers = 4
    return Operations(
        diverts=messages,
        receives=2 * messages,
        sends=messages,
        settlements=2 * messages,
        further_increments=transfers * messages * further_increments(size_bytes),
    )


def _price(operations: int, tiers: Sequence[PriceTier]) -> Decimal:
    ends = [tier.beyond for tier in tiers[1:]] + [max(operations, tiers[-1].beyond)]
    return sum(
        (
            tier.per_million * max(0, min(operations, end) - tier.beyond) / _MILLION
            for tier, end in zip(tiers, ends, strict=True)
        ),
        Decimal(),
    )


_FIELDS: Final = ("as_of", "currency", "tiers")
_TIER_FIELDS: Final = ("beyond", "per_million")
_MAX_TIERS: Final = 100
# With more digits, a bill in cents is none that decimals can hold.
_MAX_PRICE: Final = 10**6


def read_prices(value: object) -> PriceList:
    """Parse ``{"as_of": "2026-11-20", "currency": "USD", "tiers": [{"beyond": 13000000, "per_million": "0.80"}]}``.

    :raises ConfigurationError: a field is wrong; the text names it, its value and what is allowed.
    """
    given = _mapping(value, "prices", _FIELDS)
    currency, tiers = given["currency"], given["tiers"]
    if not isinstance(currency, str) or not currency or not currency.isprintable():
        raise ConfigurationError(f"prices: currency is {currency!r}: it must be a text, such as 'USD'")
    if not isinstance(tiers, list | tuple) or len(tiers) > _MAX_TIERS:
        raise ConfigurationError(f"prices: tiers is {tiers!r:.99}: it must be a list of up to {_MAX_TIERS} tiers")
    read = tuple(_tier(tier, f"prices: tiers[{index}]") for index, tier in enumerate(tiers))
    return PriceList(as_of=_day(given["as_of"]), currency=currency, tiers=read)


def _mapping(value: object, where: str, names: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or set(value) != set(names):
        actual = sorted(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
        raise ConfigurationError(f"{where} has {actual}: it must be a mapping with {', '.join(names)}")
    return value


def _tier(value: object, where: str) -> PriceTier:
    given = _mapping(value, where, _TIER_FIELDS)
    beyond = given["beyond"]
    if isinstance(beyond, bool) or not isinstance(beyond, int):
        raise ConfigurationError(f"{where}: beyond is {beyond!r}: it must be a whole number of operations")
    try:
        # Through text, since the float of JSON is not exactly the decimal that was written.
        price = Decimal(str(given["per_million"]))
    except InvalidOperation:
        price = Decimal("NaN")
    if not (price.is_finite() and 0 <= price <= _MAX_PRICE):
        raise ConfigurationError(
            f"{where}: per_million is {given['per_million']!r:.99}: it must be a price of at least 0, such as '0.80', "
            f"and at most {_MAX_PRICE}"
        )
    return PriceTier(beyond, price)


def _day(value: object) -> date:
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        raise ConfigurationError(f"prices: as_of is {value!r}: it must be a day, such as '2026-11-20'") from None
