"""Prices as configuration: a plain mapping, dated, becomes a ``PriceList``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from servicebus_pair.core.costs import PriceList, PriceTier
from servicebus_pair.core.errors import ConfigurationError

__all__ = ["read_prices"]

_FIELDS: Final = ("as_of", "currency", "tiers")
_TIER_FIELDS: Final = ("beyond", "per_million")


def read_prices(value: object) -> PriceList:
    """Read ``{"as_of": "2026-11-20", "currency": "USD", "tiers": [{"beyond": 13000000, "per_million": "0.80"}]}``.

    :raises ConfigurationError: naming the field, its value and what is allowed.
    """
    given = _mapping(value, "prices", _FIELDS)
    currency, tiers = given["currency"], given["tiers"]
    if not isinstance(currency, str) or not currency:
        raise ConfigurationError(f"prices: currency is {currency!r}: it must be a text, such as 'USD'")
    if not isinstance(tiers, list | tuple):
        raise ConfigurationError(f"prices: tiers is {tiers!r}: it must be a list of tiers")
    read = tuple(_tier(tier, f"prices: tiers[{index}]") for index, tier in enumerate(tiers))
    return PriceList(as_of=_day(given["as_of"]), currency=currency, tiers=read)


def _mapping(value: object, where: str, names: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or set(value) != set(names):
        shown = sorted(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
        raise ConfigurationError(f"{where} has {shown}: it must be a mapping with {', '.join(names)}")
    return value


def _tier(value: object, where: str) -> PriceTier:
    given = _mapping(value, where, _TIER_FIELDS)
    beyond = given["beyond"]
    if isinstance(beyond, bool) or not isinstance(beyond, int):
        raise ConfigurationError(f"{where}: beyond is {beyond!r}: it must be a whole number of operations")
    try:
        # By its text: a float of JSON is not the decimal that was written.
        price = Decimal(str(given["per_million"]))
    except InvalidOperation:
        price = Decimal("NaN")
    if not (price.is_finite() and price >= 0):
        raise ConfigurationError(
            f"{where}: per_million is {given['per_million']!r}: it must be a price of at least 0, such as '0.80'"
        )
    return PriceTier(beyond, price)


def _day(value: object) -> date:
    if isinstance(value, date):
        return value
    try:
        return date.fromisoformat(str(value))
    except ValueError:
        raise ConfigurationError(f"prices: as_of is {value!r}: it must be a day, such as '2026-11-20'") from None
