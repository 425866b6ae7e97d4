"""How long a send of the syphon may take, learned from late confirmations (SPEC section 2)."""

from __future__ import annotations

from servicebus_pair.core.syphon.policies.attempt_timeouts import AttemptTimeouts


def test_section_2_each_timed_out_send_doubles_the_time_up_to_half_a_lock() -> None:
    attempts = AttemptTimeouts(10)
    assert (attempts.current("flights"), attempts.is_lengthened("flights")) == (10, False)
    for expected in (20, 30, 30):
        attempts.record_timeout("Flights", attempts.current("flights"))
        assert (attempts.current("flights"), attempts.is_lengthened("FLIGHTS")) == (expected, True)
    assert (attempts.current("delays"), attempts.is_lengthened("delays")) == (10, False)


def test_a_send_that_had_less_time_says_nothing() -> None:
    attempts = AttemptTimeouts(10)
    attempts.record_timeout("flights", 9.9)
    assert not attempts.is_lengthened("flights")


def test_section_2_quick_confirmations_bring_the_time_back_slowly_and_late_ones_keep_it() -> None:
    attempts = AttemptTimeouts(10)
    attempts.record_timeout("flights", 10)
    for _ in range(20):
        attempts.record_confirmation("flights", 10)
    assert attempts.current("flights") == 20
    seen = []
    while attempts.is_lengthened("flights"):
        attempts.record_confirmation("flights", 1)
        seen.append(attempts.current("flights"))
    assert seen[:2] == [18, 16.2]
    assert (len(seen), seen[-1]) == (7, 10)


def test_an_attempt_may_take_longer_than_half_a_lock_if_the_option_says_so() -> None:
    attempts = AttemptTimeouts(45)
    attempts.record_timeout("flights", 45)
    assert attempts.current("flights") == 45
