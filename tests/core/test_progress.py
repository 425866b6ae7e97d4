"""How far a syphon is, and how long the rest takes (SPEC section 6)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.progress import Progress


def test_the_rest_takes_as_long_as_the_beginning_did():
    progress = Progress(moved=90, dead_lettered=10, seconds=10, remaining=50)
    assert (progress.per_second, progress.eta_seconds) == (10, 5)


def test_nothing_is_promised_where_the_rest_or_the_rate_is_unknown():
    assert Progress(moved=10, dead_lettered=0, seconds=1).eta_seconds is None
    assert Progress(moved=0, dead_lettered=0, seconds=5, remaining=7).eta_seconds is None
    assert Progress(moved=0, dead_lettered=0, seconds=0, remaining=7).eta_seconds is None


def test_an_empty_backlog_takes_no_time():
    assert Progress(moved=0, dead_lettered=0, seconds=0, remaining=0).eta_seconds == 0


@given(st.integers(1, 10**6), st.floats(0.1, 1e6), st.integers(1, 10**6))
def test_the_more_remains_the_longer_it_takes(moved: int, seconds: float, remaining: int):
    shorter = Progress(moved=moved, dead_lettered=0, seconds=seconds, remaining=remaining).eta_seconds
    longer = Progress(moved=moved, dead_lettered=0, seconds=seconds, remaining=remaining + 1).eta_seconds
    assert shorter is not None
    assert longer is not None
    assert 0 < shorter < longer
