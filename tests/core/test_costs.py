"""Operations first, money second (SPEC section 8)."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import pytest
from azure.servicebus import ServiceBusMessage
from hypothesis import given, settings
from hypothesis import strategies as st

from servicebus_emulator import Fault, FaultKind
from servicebus_emulator import Operation as FaultedOperation
from servicebus_emulator.engine.entities import QueueEntity
from servicebus_pair.core import NamespacePair
from servicebus_pair.core.backlog import backlog_queue
from servicebus_pair.core.costs import (
    STANDARD_PRICES,
    Operations,
    PriceList,
    PriceTier,
    bill,
    idle_syphon,
    pinging,
    syphoned,
)
from servicebus_pair.core.errors import ConfigurationError, ServiceError
from servicebus_pair.core.meter import Meter, Operation
from servicebus_pair.core.options import Endpoint, PairOptions
from tests.core.breakable import Breakable, breakable_pair, numbered

pytestmark = pytest.mark.simulated

HOUR = timedelta(hours=1)
POLL = timedelta(minutes=15)
MILLION = 1_000_000


@pytest.mark.parametrize(("period", "receives"), [(HOUR, 40), (24 * HOUR, 960), (30 * 24 * HOUR, 28_800)])
def test_section_8_ten_idle_queues_are_40_receives_an_hour_960_a_day_and_28800_in_30_days(
    period: timedelta, receives: int
) -> None:
    assert idle_syphon(queues=10, long_poll=POLL, period=period) == Operations(empty_receives=receives)
    ends = [
        Endpoint.from_connection_string(f"Endpoint=sb://{name}.example/;SharedAccessKeyName=n;SharedAccessKey=k")
        for name in ("contoso", "contoso-dr")
    ]
    assert NamespacePair(ends[0], ends[1], PairOptions()).cost(period=period).total == receives


def test_section_8_a_syphoned_message_is_sent_twice_received_twice_and_settled_each_time() -> None:
    assert syphoned(100, size_bytes=1024) == Operations(diverts=100, receives=200, sends=100, settlements=200)


@pytest.mark.parametrize(("size", "more"), [(0, 0), (65_536, 0), (65_537, 4), (131_072, 4), (262_144, 12)])
def test_section_8_each_64_kb_is_an_operation_on_each_of_the_four_ways(size: int, more: int) -> None:
    assert syphoned(1, size_bytes=size).further_increments == more


def test_section_8_pings_of_an_outage_are_billed() -> None:
    assert pinging(outage=HOUR, interval=timedelta(minutes=1)) == Operations(pings=60)


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
def test_section_8_the_bill_follows_the_tiers(operations: int, amount: str) -> None:
    answer = bill(Operations(sends=operations))
    assert answer.amount == Decimal(amount)
    assert answer.billable == max(0, operations - 13 * MILLION)
    assert answer.prices.as_of == STANDARD_PRICES.as_of


def test_section_8_what_others_used_of_the_month_is_taken_into_account() -> None:
    answer = bill(Operations(sends=MILLION), before=13 * MILLION)
    assert (answer.billable, answer.amount) == (MILLION, Decimal("0.80"))


def test_section_8_prices_are_configuration_with_a_day() -> None:
    prices = PriceList(as_of=date(2030, 1, 1), currency="EUR", tiers=(PriceTier(0, Decimal(2)),))
    answer = bill(Operations(pings=MILLION), prices)
    assert (answer.amount, answer.prices.currency, answer.prices.as_of) == (Decimal("2.00"), "EUR", date(2030, 1, 1))


@pytest.mark.parametrize("starts", [(), (5, 5), (7, 3), (-1,)])
def test_section_8_tiers_that_do_not_ascend_are_refused(starts: tuple[int, ...]) -> None:
    with pytest.raises(ConfigurationError, match="tiers begin at"):
        PriceList(as_of=date(2030, 1, 1), currency="EUR", tiers=tuple(PriceTier(each, Decimal(1)) for each in starts))


@settings(max_examples=100)
@given(one=st.integers(0, 3_000 * MILLION), two=st.integers(0, 3_000 * MILLION))
def test_section_8_two_bills_of_a_month_are_the_bill_of_both(one: int, two: int) -> None:
    first, second = bill(Operations(sends=one)), bill(Operations(sends=two), before=one)
    both = bill(Operations(sends=one + two))
    assert first.billable + second.billable == both.billable
    assert abs(first.amount + second.amount - both.amount) <= Decimal("0.01")


def test_section_8_operations_add_up() -> None:
    one, two = Operations(sends=3, pings=1), Operations(sends=1, settlements=2)
    assert one + two == Operations(sends=4, pings=1, settlements=2)
    assert (one + two - two, (one + two).total) == (one, 7)


def test_section_8_the_meter_counts_increments_of_64_kb() -> None:
    meter = Meter()
    meter.count_sizes(Operation.SEND, [1, 65_536, 65_537, 200_000])
    assert meter.read() == Operations(sends=4, further_increments=1 + 3)


async def test_section_8_every_operation_is_metered_where_it_happens(breakable: Breakable) -> None:
    pair = breakable.pair
    before = pair.meter.read()
    assert before == Operations(management_calls=4), "one listing and three creations"
    async with pair.sender("flights") as sender:
        await sender.send(numbered(5))
        await sender.send(ServiceBusMessage(b"x" * 100_000))
        await pair.ping("flights")
        pair.fail_over("flights", reason="test")
        await sender.send(numbered(3))
        pair.mark_healthy("flights")
        assert pair.meter.read() - before == Operations(sends=6, further_increments=1, pings=1, diverts=3)
        sent = pair.meter.read()
        await pair.syphon().drain()
    drained = pair.meter.read() - sent
    assert (drained.sends, drained.receives, drained.settlements, drained.diverts) == (3, 3, 3, 0)
    assert drained.management_calls > 0, "peeks are billed too"


async def test_section_8_an_empty_receive_is_metered_too(breakable: Breakable) -> None:
    before = breakable.pair.meter.read()
    link = breakable.pair._open().primary.receive_link("flights")
    assert await link.receive(most=1, wait=1.5, timeout=5) == []
    assert breakable.pair.meter.read() - before == Operations(empty_receives=1)


async def test_section_8_a_receive_that_failed_is_metered_too() -> None:
    async with breakable_pair() as breakable:
        breakable.primary.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, on=(FaultedOperation.OPEN_RECEIVER,)))
        before = breakable.pair.meter.read()
        with pytest.raises(ServiceError):
            await breakable.pair._open().primary.receive_link("flights").receive(most=1, wait=1, timeout=5)
        assert breakable.pair.meter.read() - before == Operations(empty_receives=1)


async def test_section_8_the_meter_says_what_the_service_counted_and_what_cost_foresees(breakable: Breakable) -> None:
    """1 KB and 100,000 B through the backlog: accepted, delivered and settled as the two namespaces count them."""
    pair, sizes = breakable.pair, [1_000] * 20 + [100_000] * 3
    before = pair.meter.read()
    pair.fail_over("flights", reason="test")
    async with pair.sender("flights") as sender:
        await sender.send([ServiceBusMessage(b"x" * size) for size in sizes])
    pair.mark_healthy("flights")
    assert (await pair.syphon().drain()).moved == {"flights": len(sizes)}
    metered = pair.meter.read() - before
    tallies, accepted = [], 0
    for index in range(3):
        queue = breakable.secondary.namespace.find(backlog_queue("contoso", index))
        assert isinstance(queue, QueueEntity)
        tallies.append(queue.tally())
        accepted += queue.reception.accepted
    primary = breakable.primary.namespace.find("flights")
    assert isinstance(primary, QueueEntity)
    assert metered.diverts == accepted == len(sizes)
    assert metered.sends == primary.reception.accepted == len(sizes)
    assert metered.receives == sum(tally.delivered for tally in tallies) == len(sizes)
    assert metered.settlements == sum(tally.completed for tally in tallies) == len(sizes)
    # Sent and received in the backlog, and sent to the primary; who receives there counts for himself.
    assert metered.further_increments == 3 * 3
    foreseen = syphoned(20, size_bytes=1_000) + syphoned(3, size_bytes=100_000)
    received_there = Operations(receives=23, settlements=23, further_increments=3)
    peeks_and_polls = Operations(management_calls=metered.management_calls, empty_receives=metered.empty_receives)
    assert metered == foreseen - received_there + peeks_and_polls
