"""With a spool, a dead secondary costs no wait for each send (SPEC section 10)."""

from __future__ import annotations

from servicebus_pair.core.send.backlog_health import BacklogHealth
from tests.core.support.manual_clock import ManualClock


def test_the_backlog_is_down_from_a_failure_until_something_works() -> None:
    health = BacklogHealth(clock=ManualClock(), retry_seconds=60)
    assert not health.is_down
    health.failed()
    assert health.is_down
    health.worked()
    assert not health.is_down


def test_one_caller_tries_it_once_in_every_interval() -> None:
    clock = ManualClock()
    health = BacklogHealth(clock=clock, retry_seconds=60)
    assert not health.claim_trial(), "it is not down"
    health.failed()
    assert not health.claim_trial()
    clock.time = 59.9
    assert not health.claim_trial()
    clock.time = 60
    assert [health.claim_trial(), health.claim_trial()] == [True, False]
    clock.time = 120
    assert health.claim_trial()
    assert health.is_down, "a trial alone proves nothing"
