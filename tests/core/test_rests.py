"""Destinations in trouble rest, growing, while others go on (SPEC section 6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.rests import LONGEST_REST_SECONDS, Rests, rest_seconds


def test_a_destination_without_a_failure_may_be_tried_by_everybody():
    rests = Rests(first=1)
    assert all(rests.may_try("flights", now=0) for _ in range(3))


def test_a_destination_that_failed_rests_and_another_does_not():
    rests = Rests(first=1)
    assert rests.failed("flights", "busy", now=10, began=9) == 1
    assert not rests.may_try("FLIGHTS", now=10.9)
    assert rests.may_try("delays", now=10)
    assert rests.next_try() == 11


def test_after_a_rest_one_link_tries_and_the_others_wait_for_what_comes_of_it():
    rests = Rests(first=1)
    rests.failed("flights", "busy", now=10, began=9)
    assert rests.due("flights", now=11)
    assert rests.may_try("flights", now=11)
    assert not rests.due("flights", now=11)
    assert not rests.may_try("flights", now=11)
    rests.untried("flights", began=11)
    assert rests.may_try("flights", now=11)


def test_what_was_on_its_way_when_a_destination_failed_fails_with_it_and_not_once_more():
    rests = Rests(first=1)
    rests.failed("flights", "busy", now=10, began=9)
    assert rests.failed("flights", "busy", now=10.25, began=9.5) == 0.75
    assert rests.failed("flights", "busy", now=30, began=9.75) == 0
    assert rests.may_try("flights", now=30)
    rests.untried("flights", began=9.75)
    assert not rests.may_try("flights", now=30)
    assert rests.failed("flights", "busy", now=31, began=30) == 2


def test_a_success_ends_the_trouble():
    rests = Rests(first=1)
    for n in range(5):
        rests.failed("flights", f"busy {n}", now=n, began=n - 0.5)
    assert rests.given_up("flights")
    assert rests.errors() == {"flights": "busy 4"}
    rests.succeeded("flights")
    assert not rests.given_up("flights")
    assert (rests.errors(), rests.next_try()) == ({}, None)


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1), (2, 2), (3, 4), (7, 64), (8, 120), (10_000, 120)])
def test_rests_double_up_to_two_minutes(failures: int, seconds: float):
    assert rest_seconds(failures, first=1) == seconds


@given(st.integers(1, 100), st.floats(1, 120))
def test_rests_never_shrink_while_failures_go_on(failures: int, first: float):
    shorter, longer = rest_seconds(failures, first=first), rest_seconds(failures + 1, first=first)
    assert first <= shorter <= longer <= LONGEST_REST_SECONDS


def test_a_destination_that_refused_for_good_is_given_up_at_once_until_it_is_pardoned():
    rests = Rests(first=1)
    rests.failed("delays", "busy", now=10, began=9)
    rests.refused("flights", "no right", now=10)
    assert rests.given_up("FLIGHTS")
    assert not rests.may_try("flights", now=1e9)
    assert (rests.next_try(), set(rests.errors())) == (11, {"flights", "delays"})
    rests.pardon()
    assert rests.may_try("flights", now=10)
    assert not rests.may_try("delays", now=10)
