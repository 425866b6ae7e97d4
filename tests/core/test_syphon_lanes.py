"""A drain of a primary that is far away: several hands on their way, and no waiting at the end (SPEC section 6)."""

from __future__ import annotations

from collections import Counter

import pytest

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core import PairOptions
from servicebus_pair.core.backlog import backlog_queues
from tests.core.hosted import hosted, messages

pytestmark = pytest.mark.simulated

QUEUES = 3


@pytest.mark.parametrize(("ordering", "lanes"), [("none", {0, 1, 2}), ("session", {0})])
async def test_section_6_hands_for_one_destination_go_at_the_same_time_unless_order_is_kept(
    ordering: str, lanes: set[int]
) -> None:
    options = PairOptions(backlog_queue_count=QUEUES, ordering=ordering)
    async with hosted("flights", options=options) as both:
        for number, queue in enumerate(backlog_queues("contoso", QUEUES)):
            await both.put_into_backlog("flights", messages(*range(16), name=f"q{number}-"), queue=queue)
        both.primary.set_fault(
            Fault(kind=FaultKind.LATE_DISPOSITION, entity="flights", on=(Operation.SEND,), delay=1.0)
        )
        report = await both.pair.syphon().drain()
        assert (report.moved, report.duplicates_possible) == ({"flights": QUEUES * 16}, 0)
        assert {lane for path, lane in both.pair._open().primary._send_links if path == "flights"} == lanes
        assert set(Counter(await both.ids("flights")).values()) == {1}


async def test_section_6_the_end_of_a_small_backlog_is_looked_for_and_not_waited_for() -> None:
    async with hosted("flights") as both:
        await both.put_into_backlog("flights", messages(1, 2, 3))
        report = await both.pair.syphon().drain()
        assert (report.moved, report.left) == ({"flights": 3}, 0)
        assert both.pair.meter.read().empty_receives == 0
