"""Growing delays for failing destinations (SPEC section 6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.model.errors import ServiceError
from servicebus_pair.core.syphon.policies.destination_backoff import (
    MAX_BACKOFF,
    DestinationBackoff,
    PermanentFailures,
    backoff_delay,
)


def test_a_destination_without_failure_can_be_acquired_by_all():
    backoff = DestinationBackoff(initial_delay=1)
    assert all(backoff.try_acquire("flights", now=0) for _ in range(3))


def test_a_failed_destination_is_delayed_and_others_are_not():
    backoff = DestinationBackoff(initial_delay=1)
    assert backoff.record_failure("flights", "busy", now=10, started=9) == 1
    assert not backoff.try_acquire("FLIGHTS", now=10.9)
    assert backoff.try_acquire("delays", now=10)
    assert backoff.next_retry(now=10) == 11


def test_a_delay_that_is_over_counts_only_where_messages_wait():
    backoff = DestinationBackoff(initial_delay=1)
    backoff.record_failure("flights", "busy", now=10, started=9)
    backoff.record_failure("delays", "busy", now=12, started=9)
    assert backoff.next_retry(now=11) == 13
    assert backoff.next_retry(now=11, waited_for=["Flights"]) == 11
    assert backoff.next_retry(now=13) is None


def test_after_the_delay_one_link_retries():
    backoff = DestinationBackoff(initial_delay=1)
    backoff.record_failure("flights", "busy", now=10, started=9)
    assert backoff.is_due("flights", now=11)
    assert backoff.try_acquire("flights", now=11)
    assert not backoff.is_due("flights", now=11)
    assert not backoff.try_acquire("flights", now=11)
    backoff.release("flights", started=11)
    assert backoff.try_acquire("flights", now=11)


def test_an_attempt_under_way_at_the_failure_is_not_counted_again():
    backoff = DestinationBackoff(initial_delay=1)
    backoff.record_failure("flights", "busy", now=10, started=9)
    assert backoff.record_failure("flights", "busy", now=10.25, started=9.5) == 0.75
    assert backoff.record_failure("flights", "busy", now=30, started=9.75) == 0
    assert backoff.try_acquire("flights", now=30)
    backoff.release("flights", started=9.75)
    assert not backoff.try_acquire("flights", now=30)
    assert backoff.record_failure("flights", "busy", now=31, started=30) == 2


def test_an_attempt_that_began_at_the_moment_of_the_failure_belongs_to_it():
    backoff = DestinationBackoff(initial_delay=1)
    backoff.record_failure("flights", "busy", now=10, started=9)
    assert backoff.record_failure("flights", "busy", now=10.25, started=10) == 0.75
    assert backoff.try_acquire("flights", now=11)
    backoff.release("flights", started=10)
    assert not backoff.try_acquire("flights", now=11)


def test_what_worked_once_has_no_permanent_failure():
    failures, error = PermanentFailures(), ServiceError("no right")
    assert failures.record("Flights", error)
    assert (dict(failures.errors), failures.any_succeeded) == ({"flights": error}, False)
    failures.record_success("FLIGHTS")
    assert not failures.record("flights", error)
    assert (dict(failures.errors), failures.any_succeeded) == ({}, True)


def test_a_success_ends_the_backoff():
    backoff = DestinationBackoff(initial_delay=1)
    for n in range(5):
        backoff.record_failure("flights", f"busy {n}", now=n, started=n - 0.5)
    assert backoff.is_abandoned("flights")
    assert backoff.errors() == {"flights": "busy 4"}
    backoff.record_success("flights")
    assert not backoff.is_abandoned("flights")
    assert (backoff.errors(), backoff.next_retry(now=4)) == ({}, None)


@pytest.mark.parametrize(("failures", "seconds"), [(1, 1), (2, 2), (3, 4), (7, 64), (8, 120), (10_000, 120)])
def test_delays_double_up_to_two_minutes(failures: int, seconds: float):
    assert backoff_delay(failures, initial_delay=1) == seconds


@given(st.integers(1, 100), st.floats(1, 120))
def test_delays_never_shrink_with_more_failures(failures: int, first: float):
    shorter, longer = backoff_delay(failures, initial_delay=first), backoff_delay(failures + 1, initial_delay=first)
    assert first <= shorter <= longer <= MAX_BACKOFF


def test_a_permanent_failure_abandons_the_destination_until_it_is_reset():
    backoff = DestinationBackoff(initial_delay=1)
    backoff.record_failure("delays", "busy", now=10, started=9)
    backoff.record_permanent_failure("flights", "no right", now=10)
    assert backoff.is_abandoned("FLIGHTS")
    assert not backoff.try_acquire("flights", now=1e9)
    assert (backoff.next_retry(now=10), set(backoff.errors())) == (11, {"flights", "delays"})
    backoff.reset_permanent_failures()
    assert backoff.try_acquire("flights", now=10)
    assert not backoff.try_acquire("delays", now=10)
