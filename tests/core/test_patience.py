"""How long an attempt on the primary may take, to the second (SPEC section 4: the interval and 2 s more)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.health import HEALTHY, EntityHealth, State
from servicebus_pair.core.patience import attempt_seconds, interval_left, late_seconds, next_pause

NOW = 1000.0
SUSPECT = EntityHealth(State.SUSPECT, since=990.0)


@pytest.mark.parametrize(
    ("health", "failing_since", "left"),
    [
        pytest.param(HEALTHY, None, 60.0, id="nothing failed yet"),
        pytest.param(HEALTHY, 998.0, 58.0, id="this send began to fail"),
        pytest.param(SUSPECT, 998.0, 50.0, id="others began to fail before it"),
        pytest.param(EntityHealth(State.SUSPECT, since=900.0), None, -40.0, id="over"),
    ],
)
def test_section_4_the_interval_runs_from_the_first_failure(
    health: EntityHealth, failing_since: float | None, left: float
) -> None:
    assert interval_left(health, interval=60.0, now=NOW, failing_since=failing_since) == left


@pytest.mark.parametrize(
    ("left", "seconds"), [(60, 10), (10, 10), (4, 4), (1, 1), (0.2, 1), (0, 1), (-0.2, 0.8), (-0.5, 0.7), (-9, 0.7)]
)
def test_section_4_an_attempt_ends_with_the_interval_or_soon_after_it(left: float, seconds: float) -> None:
    assert attempt_seconds(left) == pytest.approx(seconds)


@given(left=st.floats(-5, 3600))
def test_section_4_no_attempt_that_begins_within_the_interval_ends_more_than_a_second_after_it(left: float) -> None:
    assert attempt_seconds(left) <= max(left, 0) + 1


@pytest.mark.parametrize(("attempt", "late"), [(10, 7), (4, 1), (2, 0.3), (0.5, 0.3)])
def test_section_4_a_divert_is_prepared_beside_an_attempt_that_may_be_the_last(attempt: float, late: float) -> None:
    assert late_seconds(attempt) == late


def test_section_4_pauses_grow_up_to_five_seconds() -> None:
    pauses = [0.25]
    for _ in range(6):
        pauses.append(next_pause(pauses[-1]))
    assert pauses == [0.25, 0.5, 1, 2, 4, 5, 5]
