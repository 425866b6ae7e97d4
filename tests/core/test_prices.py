"""Prices are configuration with a date, and a ledger says what was billed at least (SPEC sections 8 and 9)."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from servicebus_pair.core.costs import Operations, PriceTier
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.events import MessageRef, MessagesAccepted, MessagesSyphoned, Route
from servicebus_pair.core.ledger import Ledger
from servicebus_pair.core.ledger_costs import count_ledger
from servicebus_pair.core.prices import read_prices

GOOD: dict[str, Any] = {
    "as_of": "2026-12-01",
    "currency": "EUR",
    "tiers": [{"beyond": 0, "per_million": "0.80"}, {"beyond": 1_000_000, "per_million": 0.5}],
}
NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)


def test_section_8_prices_are_read_as_they_were_written() -> None:
    prices = read_prices(GOOD)
    assert (prices.as_of, prices.currency) == (date(2026, 12, 1), "EUR")
    assert prices.tiers == (PriceTier(0, Decimal("0.80")), PriceTier(1_000_000, Decimal("0.5")))
    assert read_prices({**GOOD, "as_of": date(2026, 12, 1)}) == prices


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"as_of": "soon"}, "as_of is 'soon': it must be a day"),
        ({"currency": ""}, "currency is '': it must be a text"),
        ({"tiers": 3}, "tiers is 3: it must be a list"),
        ({"tiers": []}, "there must be one or more"),
        ({"tiers": [{"beyond": 1}]}, r"tiers\[0\] has \['beyond'\]: it must be a mapping with beyond, per_million"),
        ({"tiers": [{"beyond": "1", "per_million": 1}]}, r"tiers\[0\]: beyond is '1': it must be a whole number"),
        ({"tiers": [{"beyond": 1, "per_million": "free"}]}, "per_million is 'free': it must be a price of at least 0"),
        ({"tiers": [{"beyond": 1, "per_million": -1}]}, "per_million is -1: it must be a price"),
        ({"vat": 19}, r"prices has \['as_of', 'currency', 'tiers', 'vat'\]: it must be a mapping with"),
    ],
)
def test_a_wrong_price_is_named(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        read_prices({**GOOD, **wrong})


def test_section_9_a_ledger_says_which_operations_its_records_stand_for(tmp_path: Path) -> None:
    small, large = MessageRef("a", 65_536), MessageRef("b", 65_537)
    at = NOON.timestamp()
    with Ledger(tmp_path, run="r") as ledger:
        ledger.observe(MessagesAccepted("flights", Route.PRIMARY, None, (small, large), at))
        ledger.observe(MessagesAccepted("flights", Route.BACKLOG, "queue", (large,), at))
        ledger.observe(MessagesSyphoned("flights", "queue", (large,), at))
        ledger.observe(MessagesAccepted("flights", Route.PRIMARY, None, (small,), at + 60))
    ledger.path.write_bytes(ledger.path.read_bytes() + b'{"v":1,"kind":"sen')
    counted = count_ledger(tmp_path, since=NOON, until=NOON + timedelta(minutes=1))
    assert counted.operations == Operations(sends=3, diverts=1, receives=1, settlements=1, further_increments=4)
    assert (counted.records, counted.unreadable) == (4, 1)


def test_a_ledger_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="missing' is no folder"):
        count_ledger(tmp_path / "missing", since=NOON, until=NOON)
