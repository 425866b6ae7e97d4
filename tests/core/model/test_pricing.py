"""Operation counts and their cost (SPEC section 8)."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core import NamespacePair
from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.options import Endpoint, PairOptions
from servicebus_pair.core.model.pricing import (
    Operations,
    PriceList,
    PriceTier,
    backlog_operations,
    bill,
    idle_syphon_operations,
    ping_operations,
    read_prices,
)
from tests.examples import examples

HOUR = timedelta(hours=1)
POLL = timedelta(minutes=15)
MILLION = 1_000_000
GOOD: dict[str, Any] = {
    "as_of": "2026-12-01",
    "currency": "EUR",
    "tiers": [{"beyond": 0, "per_million": "0.80"}, {"beyond": 1_000_000, "per_million": 0.5}],
}


@pytest.mark.parametrize(("period", "receives"), [(HOUR, 40), (24 * HOUR, 960), (30 * 24 * HOUR, 28_800)])
def test_ten_idle_queues_poll_40_times_an_hour(period: timedelta, receives: int) -> None:
    assert idle_syphon_operations(queues=10, long_poll=POLL, period=period) == Operations(empty_receives=receives)
    ends = [
        Endpoint.from_connection_string(f"Endpoint=sb://{name}.example/;SharedAccessKeyName=n;SharedAccessKey=k")
        for name in ("contoso", "contoso-dr")
    ]
    pair = NamespacePair(ends[0], ends[1], PairOptions())
    assert (pair.cost(period=period).total, pair.cost().total) == (receives, 28_800)


def test_backlog_message_is_sent_received_and_settled_twice() -> None:
    assert backlog_operations(100, size_bytes=1024) == Operations(diverts=100, receives=200, sends=100, settlements=200)


@pytest.mark.parametrize(("size", "more"), [(0, 0), (65_536, 0), (65_537, 4), (131_072, 4), (262_144, 12)])
def test_every_started_64_kb_counts_on_all_four_transfers(size: int, more: int) -> None:
    assert backlog_operations(1, size_bytes=size).further_increments == more


def test_pings_of_an_outage() -> None:
    assert ping_operations(outage=HOUR, interval=timedelta(minutes=1)) == Operations(pings=60)


@pytest.mark.parametrize(
    ("operations", "amount"),
    [
        (0, "0.00"),
        (13 * MILLION, "0.00"),
        (14 * MILLION, "0.80"),
        (100 * MILLION, "69.60"),
        (101 * MILLION, "70.10"),
        (2_500 * MILLION, "1269.60"),
        (2_600 * MILLION, "1289.60"),
    ],
)
def test_bill_follows_the_tiers(operations: int, amount: str) -> None:
    result = bill(Operations(sends=operations))
    assert result.amount == Decimal(amount)
    assert result.billable == max(0, operations - 13 * MILLION)
    assert (result.prices.as_of, result.prices.currency) == (date(2026, 11, 20), "USD")


def test_earlier_operations_of_the_month_use_up_the_tiers() -> None:
    result = bill(Operations(sends=MILLION), before=13 * MILLION)
    assert (result.billable, result.amount) == (MILLION, Decimal("0.80"))


def test_bill_uses_given_prices() -> None:
    prices = PriceList(as_of=date(2030, 1, 1), currency="EUR", tiers=(PriceTier(0, Decimal(2)),))
    assert bill(Operations(), replace(prices, tiers=(PriceTier(0, Decimal(MILLION)),))).amount == 0
    dear = replace(prices, tiers=(PriceTier(0, Decimal(MILLION)), PriceTier(5, Decimal(MILLION))))
    assert [bill(Operations(sends=sends), dear).amount for sends in (0, 1, 5, 6)] == [0, 1, 5, 6]
    result = bill(Operations(pings=MILLION), prices)
    assert (result.amount, result.prices.currency, result.prices.as_of) == (Decimal("2.00"), "EUR", date(2030, 1, 1))


@pytest.mark.parametrize("starts", [(), (5, 5), (5, 5, 9), (7, 3), (-1,), (-1, 5)])
def test_tiers_must_ascend(starts: tuple[int, ...]) -> None:
    with pytest.raises(ConfigurationError, match="tiers begin at"):
        PriceList(as_of=date(2030, 1, 1), currency="EUR", tiers=tuple(PriceTier(each, Decimal(1)) for each in starts))


@examples(100)
@given(one=st.integers(0, 3_000 * MILLION), two=st.integers(0, 3_000 * MILLION))
def test_bills_of_one_month_add_up(one: int, two: int) -> None:
    first, second = bill(Operations(sends=one)), bill(Operations(sends=two), before=one)
    both = bill(Operations(sends=one + two))
    assert first.billable + second.billable == both.billable
    assert abs(first.amount + second.amount - both.amount) <= Decimal("0.01")


def test_operations_add_and_subtract() -> None:
    one, two = Operations(sends=3, pings=1), Operations(sends=1, settlements=2)
    assert one + two == Operations(sends=4, pings=1, settlements=2)
    assert (one + two - two, (one + two).total) == (one, 7)


def test_prices_are_parsed_exactly() -> None:
    prices = read_prices(GOOD)
    assert (prices.as_of, prices.currency) == (date(2026, 12, 1), "EUR")
    assert prices.tiers == (PriceTier(0, Decimal("0.80")), PriceTier(1_000_000, Decimal("0.5")))
    assert read_prices({**GOOD, "as_of": date(2026, 12, 1)}) == prices
    free = read_prices({**GOOD, "tiers": [{"beyond": 0, "per_million": 0}]})
    assert bill(Operations(sends=5 * MILLION), free).amount == 0
    most = [{"beyond": each, "per_million": 1_000_000} for each in range(100)]
    assert len(read_prices({**GOOD, "tiers": most}).tiers) == 100


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"as_of": "soon"}, "as_of is 'soon': it must be a day"),
        ({"currency": ""}, "currency is '': it must be a text"),
        ({"currency": "\u202eDSU"}, "currency is .* it must be a text"),
        ({"tiers": 3}, "tiers is 3: it must be a list"),
        ({"tiers": []}, "there must be one or more"),
        ({"tiers": [{"beyond": 1}]}, r"tiers\[0\] has \['beyond'\]: it must be a mapping with beyond, per_million"),
        ({"tiers": [{"beyond": "1", "per_million": 1}]}, r"tiers\[0\]: beyond is '1': it must be a whole number"),
        ({"tiers": [{"beyond": 1, "per_million": "free"}]}, "per_million is 'free': it must be a price of at least 0"),
        ({"tiers": [{"beyond": 1, "per_million": -1}]}, "per_million is -1: it must be a price"),
        ({"tiers": [{"beyond": 1, "per_million": 1e30}]}, "and at most 1000000"),
        ({"tiers": [{"beyond": each, "per_million": 1} for each in range(101)]}, "a list of up to 100 tiers"),
        ({"vat": 19}, r"prices has \['as_of', 'currency', 'tiers', 'vat'\]: it must be a mapping with"),
    ],
)
def test_invalid_price_field_is_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read_prices({**GOOD, **wrong})


def test_negative_number_of_earlier_operations_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="before is -1: allowed is 0 or more"):
        bill(Operations(), before=-1)
