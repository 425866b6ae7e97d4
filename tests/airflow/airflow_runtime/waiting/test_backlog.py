"""Conditions on the depth of the backlog."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.airflow_runtime.waiting.backlog import BacklogCondition, BacklogDepth, Until


@pytest.mark.parametrize(
    ("until", "messages", "age", "depth", "expected"),
    [
        ("drained", 0, None, BacklogDepth(0, 0), True),
        ("drained", 0, None, BacklogDepth(1, 1), False),
        ("drained", 5, None, BacklogDepth(1, 5, 9e9), True),  # ages do not matter
        ("drained", 5, 60.0, BacklogDepth(1, 5, 61.0), False),  # few, but one of them old
        ("drained", 5, 60.0, BacklogDepth(1, 5, 60.0), True),
        ("filled", 0, None, BacklogDepth(0, 0), False),  # an empty backlog is never filled
        ("filled", 0, None, BacklogDepth(1, 1), True),
        ("filled", 10, None, BacklogDepth(1, 9), False),
        ("filled", 10, 60.0, BacklogDepth(1, 9, 60.0), True),  # few, but one of them old
    ],
)
def test_conditions_compare_count_and_age(
    until: str, messages: int, age: float | None, depth: BacklogDepth, expected: bool
):
    assert BacklogCondition(until=Until(until), messages=messages, age=age).is_met_by(depth) is expected


@given(wanted=st.integers(1, 50), held=st.integers(0, 50))
def test_filled_with_n_is_the_negation_of_drained_to_n_minus_one(wanted: int, held: int):
    filled = BacklogCondition(until=Until.FILLED, messages=wanted)
    drained = BacklogCondition(until=Until.DRAINED, messages=wanted - 1)

    assert filled.is_met_by(BacklogDepth(1, held)) is not drained.is_met_by(BacklogDepth(1, held))
