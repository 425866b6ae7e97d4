"""A secondary that is silent does not hold a send for the sum of its queues (SPEC section 4)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core.backlog import backlog_queues
from servicebus_pair.core.deadline import Deadline
from servicebus_pair.core.errors import NoBacklogQueueError, SendTimeoutError
from servicebus_pair.core.search import Search, search_seconds
from tests.core.breakable import QUICK, numbered
from tests.core.hosted import hosted

pytestmark = pytest.mark.simulated


class HandClock:
    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds


@pytest.mark.parametrize(("interval", "most"), [(0.0, 10.0), (15.0, 15.0), (60.0, 20.0), (3600.0, 20.0)])
def test_section_4_silence_is_endured_for_the_failover_interval_but_no_longer_than_20_s(
    interval: float, most: float
) -> None:
    assert search_seconds(interval, silent=False) == most
    assert search_seconds(interval, silent=True) == 4.0


@pytest.mark.parametrize(("seconds", "attempts"), [(20.0, [10.0, 5.0, 2.5, 1.25, 1.0, 1.0]), (4.0, [2.0, 1.0, 1.0])])
def test_section_4_each_silent_queue_is_given_half_of_what_is_left(seconds: float, attempts: list[float]) -> None:
    clock = HandClock()
    search = Search(clock, seconds=seconds, deadline=Deadline(clock, timeout=None))
    given = []
    while not search.over:
        search.begin()
        given.append(search.seconds())
        clock.time += given[-1]
        search.failed()
    assert given == attempts


@given(seconds=st.floats(0.01, 100), used=st.lists(st.floats(0, 1), min_size=200, max_size=200))
def test_section_4_no_search_outlasts_its_time_by_more_than_its_last_attempt(seconds: float, used: list[float]) -> None:
    clock = HandClock()
    search = Search(clock, seconds=seconds, deadline=Deadline(clock, timeout=None))
    for part in used:
        if search.over:
            break
        search.begin()
        clock.time += part * search.seconds()
        search.failed()
    assert clock.time <= seconds + 1


def test_section_4_a_queue_that_refuses_at_once_and_one_that_makes_progress_cost_nothing() -> None:
    clock = HandClock()
    search = Search(clock, seconds=20.0, deadline=Deadline(clock, timeout=50.0))
    for _ in range(100):
        search.begin()
        search.failed()
    assert search.seconds() == 10.0
    clock.time += 30
    search.begin()
    assert search.seconds() == 10.0
    clock.time += 15
    search.begin()
    assert search.seconds() == 5.0
    clock.time += 5
    with pytest.raises(SendTimeoutError):
        search.seconds()


@pytest.mark.slow
async def test_section_4_a_frozen_secondary_fails_all_sends_soon_and_the_next_ones_sooner() -> None:
    """Twelve senders at once: they share the links, and do not wait for each other's silence one after another."""
    options = replace(QUICK, backlog_queue_count=10, failover_interval=timedelta(seconds=2))
    async with hosted("flights", options=options) as both:
        both.pair.fail_over("flights", reason="test", hold=timedelta(minutes=5))
        senders = [both.pair.sender("flights") for _ in range(12)]
        warm = [await sender.send(numbered(1, start=n)) for n, sender in enumerate(senders)]
        assert sum(each.diverted for each in warm) == 12
        both.secondary.set_fault(Fault(kind=FaultKind.FREEZE))

        async def fails(n: int) -> None:
            with pytest.raises(NoBacklogQueueError) as caught:
                await senders[n].send(numbered(2, start=100))
            assert len(caught.value.unsent) == 2

        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.gather(*(fails(n) for n in range(12)))
        assert 5 < loop.time() - began < 16
        began = loop.time()
        await fails(0)
        assert loop.time() - began < 7
        both.secondary.clear_faults()
        assert (await senders[0].send(numbered(1, start=50))).diverted == 1
        assert "m50" in [each for queue in backlog_queues("contoso", 10) for each in await both.ids_in_backlog(queue)]
