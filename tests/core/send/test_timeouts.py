"""Time limits of a send: attempts on the primary and the search for a backlog queue (SPEC section 4)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.model.errors import ConfigurationError, SendTimeoutError
from servicebus_pair.core.send.batch_delivery import prepare_delay
from servicebus_pair.core.send.next_step import attempt_timeout
from servicebus_pair.core.send.timeouts import (
    BacklogSearchBudget,
    Deadline,
    search_timeout,
)
from tests.core.support.manual_clock import START, ManualClock

NOW = 1000.0


@pytest.mark.parametrize(
    ("remaining", "seconds"),
    [(60, 10), (10, 10), (4, 4), (1, 1), (0.2, 1), (0, 1), (-0.2, 0.8), (-0.5, 0.7), (-9, 0.7)],
)
def test_section_4_an_attempt_ends_with_the_interval(remaining: float, seconds: float) -> None:
    assert attempt_timeout(remaining, longest=10.0) == pytest.approx(seconds)


@given(remaining=st.floats(-5, 3600))
def test_section_4_no_attempt_exceeds_the_interval_by_more_than_a_second(remaining: float) -> None:
    assert attempt_timeout(remaining, longest=10.0) <= max(remaining, 0) + 1
    assert attempt_timeout(remaining, longest=0.5) <= 0.5


@pytest.mark.parametrize(("timeout", "delay"), [(10, 7), (4, 1), (2, 0.3), (0.5, 0.3)])
def test_section_4_the_backlog_link_is_opened_before_the_attempt_ends(timeout: float, delay: float) -> None:
    assert prepare_delay(timeout) == delay


@pytest.mark.parametrize(("interval", "expected"), [(0.0, 10.0), (15.0, 15.0), (60.0, 20.0), (3600.0, 20.0)])
def test_section_4_search_timeout_is_the_failover_interval_within_bounds(interval: float, expected: float) -> None:
    assert search_timeout(interval, unresponsive=False) == expected
    assert search_timeout(interval, unresponsive=True) == 4.0


@pytest.mark.parametrize(("seconds", "attempts"), [(20.0, [10.0, 5.0, 2.5, 1.25, 1.0, 1.0]), (4.0, [2.0, 1.0, 1.0])])
def test_section_4_each_attempt_gets_half_of_the_remaining_budget(seconds: float, attempts: list[float]) -> None:
    clock = ManualClock()
    budget = BacklogSearchBudget(clock, seconds=seconds, deadline=Deadline(clock, timeout=None))
    timeouts = []
    while not budget.exhausted:
        budget.start_attempt()
        timeouts.append(budget.call_timeout())
        clock.time += timeouts[-1]
        budget.fail_attempt()
    assert timeouts == attempts


@given(seconds=st.floats(0.01, 100), used=st.lists(st.floats(0, 1), min_size=200, max_size=200))
def test_section_4_a_search_exceeds_its_budget_by_at_most_one_attempt(seconds: float, used: list[float]) -> None:
    clock = ManualClock()
    budget = BacklogSearchBudget(clock, seconds=seconds, deadline=Deadline(clock, timeout=None))
    for part in used:
        if budget.exhausted:
            break
        budget.start_attempt()
        clock.time += part * budget.call_timeout()
        budget.fail_attempt()
    assert clock.time <= START + seconds + 1 + 1e-9


def test_section_4_immediate_refusals_and_progress_cost_no_budget() -> None:
    clock = ManualClock()
    budget = BacklogSearchBudget(clock, seconds=20.0, deadline=Deadline(clock, timeout=50.0))
    for _ in range(100):
        budget.start_attempt()
        budget.fail_attempt()
    assert budget.call_timeout() == 10.0
    clock.time += 30
    budget.start_attempt()
    assert budget.call_timeout() == 10.0
    clock.time += 15
    budget.start_attempt()
    assert budget.call_timeout() == 5.0
    clock.time += 5
    with pytest.raises(SendTimeoutError):
        budget.call_timeout()


def test_section_4_further_calls_of_an_attempt_have_the_rest_of_its_time_and_at_least_a_moment() -> None:
    clock = ManualClock()
    budget = BacklogSearchBudget(clock, seconds=20.0, deadline=Deadline(clock, timeout=10.0625))
    budget.start_attempt()
    timeouts = []
    for seconds in (0, 4, 5.75, 0.25):
        clock.time += seconds
        timeouts.append(budget.call_timeout())
    assert timeouts == [10.0, 6.0, 0.25, 0.0625]
    clock.time -= 0.0625
    assert budget.call_timeout() == 0.1


@pytest.mark.parametrize("timeout", [-1, float("nan"), True, "5"])
def test_section_4_an_invalid_timeout_is_refused(timeout: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"timeout is .*must be a number of seconds"):
        Deadline(ManualClock(), timeout=timeout)


def test_section_4_a_timeout_of_zero_has_passed_at_once() -> None:
    with pytest.raises(SendTimeoutError):
        Deadline(ManualClock(), timeout=0).remaining()


@pytest.mark.parametrize("late", [0.0, 1.0])
def test_section_4_a_deadline_that_has_passed_raises(late: float) -> None:
    clock = ManualClock()
    deadline = Deadline(clock, timeout=2.0)
    assert deadline.remaining() == 2.0
    clock.time += 2 + late
    with pytest.raises(SendTimeoutError, match=r"not finished within the 2\.0 s"):
        deadline.remaining()
