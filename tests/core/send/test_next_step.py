"""What to do next with a batch for the primary (SPEC section 4)."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.model.errors import (
    AuthorizationError,
    InvalidMessageError,
    MessageTooLargeError,
    NoBacklogQueueError,
    RefusedError,
    RejectedError,
    ServerBusyError,
    ServiceError,
    ServiceFaultError,
    TimedOutError,
    UnreachableError,
)
from servicebus_pair.core.model.health_state import HEALTHY, EntityHealth, HealthState
from servicebus_pair.core.model.results import SendResult
from servicebus_pair.core.send.next_step import (
    Attempt,
    AttemptHistory,
    Divert,
    Fail,
    Pause,
    Probe,
    Refuse,
    SendPolicy,
    Split,
    Spool,
    Step,
    TimeOut,
    is_overdue,
    next_step,
    remaining_interval,
)
from tests.core.support.manual_clock import START

NOW = START
SUSPECT = EntityHealth(HealthState.SUSPECT, since=NOW - 10)
FAILED_OVER = EntityHealth(HealthState.FAILED_OVER, since=NOW - 100)
POLICY = SendPolicy(interval=60.0, busy_delay=10.0)
FAULT, BUSY, REJECTED = ServiceFaultError("broken"), ServerBusyError("busy"), RejectedError("poison")
LOST, FORBIDDEN = UnreachableError("lost"), AuthorizationError("no")
NEW = AttemptHistory()


def failed(*errors: ServiceError, began: float = NOW, was_attached: bool = False) -> AttemptHistory:
    """The history after attempts that failed one after the other, each followed by its pause but the last."""
    history = NEW
    for error in errors:
        history = history.paused().failed(
            error, began=began, was_attached=was_attached, is_final=isinstance(error, AuthorizationError)
        )
    return history


def step(
    history: AttemptHistory,
    health: EntityHealth = HEALTHY,
    *,
    now: float = NOW,
    messages: int = 1,
    policy: SendPolicy = POLICY,
    deadline: float = inf,
) -> Step:
    return next_step(history, health, now=now, messages=messages, policy=policy, deadline=deadline)


@pytest.mark.parametrize(
    ("health", "failing_since", "remaining"),
    [
        pytest.param(HEALTHY, None, 60.0, id="nothing failed yet"),
        pytest.param(HEALTHY, NOW - 2, 58.0, id="this send started to fail"),
        pytest.param(SUSPECT, NOW - 2, 50.0, id="another send failed before it"),
        pytest.param(EntityHealth(HealthState.SUSPECT, since=NOW - 100), None, -40.0, id="interval has passed"),
    ],
)
def test_section_4_the_interval_starts_with_the_first_failure(
    health: EntityHealth, failing_since: float | None, remaining: float
) -> None:
    assert remaining_interval(health, interval=60.0, now=NOW, failing_since=failing_since) == remaining


def test_section_4_the_earlier_of_both_clocks_counts() -> None:
    assert remaining_interval(SUSPECT, interval=60.0, now=NOW, failing_since=NOW - 20) == 40.0


@pytest.mark.parametrize(("health", "expected"), [(HEALTHY, Attempt()), (SUSPECT, Attempt()), (FAILED_OVER, Divert())])
def test_section_4_a_batch_goes_to_the_primary_unless_it_is_failed_over(health: EntityHealth, expected: Step) -> None:
    assert step(NEW, health) == expected


@pytest.mark.parametrize("health", [HEALTHY, SUSPECT, FAILED_OVER])
def test_section_4_an_error_for_the_caller_ends_the_send_at_once(health: EntityHealth) -> None:
    assert step(failed(FORBIDDEN), health) == Fail(FORBIDDEN)


def test_section_4_retry_delays_double_up_to_five_seconds() -> None:
    pauses = [step(failed(*[FAULT] * count)) for count in range(1, 9)]
    assert pauses == [Pause(each) for each in (0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0, 5.0)]
    assert step(failed(FAULT).paused()) == Attempt()


def test_section_4_a_pause_ends_with_the_interval_and_the_deadline() -> None:
    history = failed(*[FAULT] * 8)
    assert step(history, SUSPECT, now=NOW + 48) == Pause(2.0)
    assert step(history, deadline=NOW + 1.5) == Pause(1.5)


@pytest.mark.parametrize("history", [NEW, failed(FAULT), failed(BUSY), failed(REJECTED)])
def test_section_4_a_send_ends_at_its_deadline(history: AttemptHistory) -> None:
    for deadline in (NOW, NOW - 1):
        assert step(history, deadline=deadline) == TimeOut(history.last_error)
        assert step(history.paused(), deadline=deadline) == TimeOut(history.last_error)


@pytest.mark.parametrize(
    ("history", "health", "overdue"),
    [
        (failed(FAULT), EntityHealth(HealthState.SUSPECT, since=NOW - 60.1), True),
        (failed(FAULT), EntityHealth(HealthState.SUSPECT, since=NOW - 60.0), True),
        (failed(FAULT), EntityHealth(HealthState.SUSPECT, since=NOW - 59.9), False),
        (failed(FAULT), EntityHealth(HealthState.HEALTHY, since=NOW - 99.0), False),
        (failed(FAULT).paused(), EntityHealth(HealthState.SUSPECT, since=NOW - 99.0), False),
    ],
)
def test_section_6_an_entity_is_overdue_when_a_failure_that_counts_did_not_fail_it_over(
    history: AttemptHistory, health: EntityHealth, overdue: bool
) -> None:
    assert is_overdue(history, health, now=NOW, interval=60.0) is overdue


@pytest.mark.parametrize(
    ("health", "ordered"),
    [
        (HEALTHY, Fail(FAULT)),
        # Since the last success of another send the entity takes nothing; it fails over, or takes this one, too.
        (EntityHealth(HealthState.SUSPECT, since=NOW + 0.125), Pause(0.125)),
        (EntityHealth(HealthState.SUSPECT, since=NOW + 59), Pause(0.5)),
        (EntityHealth(HealthState.SUSPECT, since=NOW + 60), Pause(0.5)),
        (EntityHealth(HealthState.SUSPECT, since=NOW + 60.1), Fail(FAULT)),
    ],
)
def test_section_4_each_send_has_its_own_clock(health: EntityHealth, ordered: Step) -> None:
    history = failed(FAULT, FAULT)
    assert isinstance(step(history, health, now=NOW + 59.9), Pause)
    assert step(history, health, now=NOW + 60) == Divert()
    assert step(history, health, now=NOW + 60, policy=replace(POLICY, ordered=True)) == ordered


def test_section_6_what_failed_before_the_route_changed_is_over() -> None:
    history = failed(LOST, FAULT).not_diverted(NOT_DIVERTED)
    assert history.in_epoch(0) is history
    assert history.in_epoch(1) == AttemptHistory(last_error=FAULT, epoch=1)
    assert history.in_epoch(1).part().in_epoch(1).epoch == 1
    final = failed(FORBIDDEN)
    assert final.in_epoch(1) is final, "an error for the caller"


def test_section_4_waiting_for_the_link_is_part_of_the_clock() -> None:
    history = NEW.waited(since=NOW - 60)
    assert not history.counts
    assert step(history) == Divert()
    # In session order it is no reason to fail: the entity fails over, or takes the message.
    ordered = replace(POLICY, ordered=True)
    assert step(history, policy=ordered) == Pause(0.0)
    assert step(history.paused(), policy=ordered) == Attempt()
    assert step(failed(FAULT, began=NOW - 1).waited(since=NOW)) == step(NEW.waited(since=NOW)) == Pause(0.25)


def test_section_4_one_loss_of_a_working_connection_is_tried_again_at_once_and_not_counted() -> None:
    once = failed(LOST, was_attached=True)
    assert (step(once), once.counts, once.failing_since) == (Attempt(), False, NOW)
    twice = once.failed(LOST, began=NOW, was_attached=True, is_final=False)
    assert (step(twice), twice.counts) == (Pause(0.25), True)
    assert failed(LOST).counts
    assert failed(FAULT, was_attached=True).counts


def test_section_4_busy_is_waited_for_and_starts_the_clock_anew() -> None:
    history = failed(FAULT, BUSY)
    assert (step(history), history.counts, history.failing_since) == (Pause(10.0), False, None)
    assert step(history, deadline=NOW + 9.9) == TimeOut(BUSY)
    assert step(history, deadline=NOW + 10) == Pause(10.0)


def test_section_4_a_send_without_a_deadline_ends_although_the_service_stays_busy() -> None:
    history = failed(*[BUSY] * 11)
    assert step(history, now=NOW + 59.9) == Pause(10.0)
    assert step(history, now=NOW + 60) == Divert()
    assert step(history, now=NOW + 110, policy=replace(POLICY, ordered=True)) == Fail(BUSY)
    assert step(failed(*[BUSY] * 10), now=NOW + 110) == Pause(10.0)
    # Within the caller's timeout, it is waited for.
    assert step(history, now=NOW + 110, deadline=NOW + 500) == Pause(10.0)


def rejected(count: int, *, works_at: float | None = None) -> AttemptHistory:
    """The history of a batch that was rejected so often, and of which something else is known to be accepted."""
    return replace(failed(*[REJECTED] * count), works_at=works_at)


def test_section_4_a_rejected_batch_is_split_until_the_offender_stands_alone() -> None:
    history = failed(REJECTED)
    assert (step(history, messages=2), history.counts) == (Probe(), False)
    works = history.probed(works_at=NOW + 1)
    assert step(works, messages=2) == Split()
    part = works.part()
    assert (part.rejections, part.failures, part.failing_since, step(part)) == (0, 0, NOW, Attempt())
    # One probe is enough for all parts of a batch.
    again = part.failed(REJECTED, began=NOW + 2, was_attached=True, is_final=False)
    assert step(again, messages=2) == Split()


def test_section_4_a_rejection_counts_if_nothing_else_is_accepted_either() -> None:
    counted = failed(REJECTED).probed(works_at=None)
    assert (step(counted, messages=5), counted.counts) == (Pause(0.25), True)
    again = counted.paused().failed(REJECTED, began=NOW, was_attached=True, is_final=False)
    assert (step(again, messages=5), again.counts) == (Probe(), False)
    assert step(again.probed(works_at=None), messages=5) == Pause(0.5)
    assert step(counted, now=NOW + 60) == Divert()
    assert step(rejected(3), FAILED_OVER) == Divert()


def test_section_4_alone_a_message_is_tried_three_times_before_the_verdict() -> None:
    assert step(rejected(1)) == Probe()
    assert step(rejected(1, works_at=NOW + 1)) == Pause(0.25)
    assert step(rejected(2, works_at=NOW + 1)) == Pause(0.5)
    assert step(rejected(2, works_at=NOW + 1), deadline=NOW + 0.25) == Pause(0.25)
    assert step(rejected(3, works_at=NOW + 1)) == Refuse()
    # What was accepted before the message was first rejected proves nothing.
    for early in (NOW, NOW - 1):
        assert step(rejected(3, works_at=early)) == Probe()
    assert step(rejected(3, works_at=NOW).probed(works_at=None)) == Pause(0.25)


@given(
    errors=st.lists(st.sampled_from([FAULT, BUSY, REJECTED, LOST, TimedOutError("late")]), max_size=12),
    health=st.sampled_from([HEALTHY, SUSPECT, FAILED_OVER]),
    messages=st.integers(1, 3),
    elapsed=st.floats(0, 500),
    deadline=st.sampled_from([inf, NOW + 0.1, NOW + 100]),
)
def test_section_4_no_pause_goes_beyond_the_deadline_and_no_message_is_refused_with_a_batch(
    errors: list[ServiceError], health: EntityHealth, messages: int, elapsed: float, deadline: float
) -> None:
    now = NOW + elapsed
    decided = step(failed(*errors), health, now=now, messages=messages, deadline=deadline)
    match decided:
        case Pause(seconds):
            assert 0 <= seconds <= deadline - now
        case Refuse():
            assert messages == 1
        case Divert():
            assert health.failed_over or elapsed >= 60


NOT_DIVERTED = NoBacklogQueueError("no queue", cause=LOST, result=SendResult(), unsent=())


@pytest.mark.parametrize("spools", [True, False])
def test_section_10_the_rungs_are_primary_backlog_spool_and_an_error(spools: bool) -> None:
    policy = replace(POLICY, spools=spools)
    assert step(NEW, policy=policy) == Attempt()
    assert step(NEW, FAILED_OVER, policy=policy) == Divert()
    assert step(NEW.not_diverted(NOT_DIVERTED), FAILED_OVER, policy=policy) == (
        Spool() if spools else Fail(NOT_DIVERTED)
    )
    assert step(failed(FORBIDDEN), FAILED_OVER, policy=policy) == Fail(FORBIDDEN), "an error for the caller"


@pytest.mark.parametrize("spools", [True, False])
def test_section_10_a_backlog_that_is_down_is_not_asked_again_where_there_is_a_spool(spools: bool) -> None:
    policy = replace(POLICY, spools=spools)
    for health, expected in ((HEALTHY, Attempt()), (FAILED_OVER, Spool() if spools else Divert())):
        assert next_step(NEW, health, now=NOW, messages=1, policy=policy, backlog_is_down=True) == expected


@pytest.mark.parametrize("history", [NEW, failed(LOST), failed(FAULT), failed(BUSY)])
def test_section_10_the_deadline_ends_in_the_spool(history: AttemptHistory) -> None:
    spooling = replace(POLICY, spools=True)
    assert step(history, policy=spooling, deadline=NOW) == Spool()
    assert step(failed(BUSY), policy=spooling, deadline=NOW + 5) == Spool(), "the service will be busy beyond it"


IN_ORDER = replace(POLICY, ordered=True, spools_in_order=True)
SPOOLING = replace(FAILED_OVER, spool="s")


@pytest.mark.parametrize(
    ("history", "health", "policy", "expected"),
    [
        pytest.param(NEW, FAILED_OVER, IN_ORDER, Divert(), id="the backlog comes first"),
        pytest.param(NEW.not_diverted(NOT_DIVERTED), FAILED_OVER, IN_ORDER, Spool(), id="it took nothing"),
        pytest.param(NEW, SPOOLING, IN_ORDER, Spool(), id="messages wait in the spool"),
        pytest.param(NEW, SPOOLING, replace(POLICY, ordered=True), Spool(), id="in one that this process lacks"),
        pytest.param(NEW, SPOOLING, replace(POLICY, ordered=True, unspools=True), Divert(), id="that is emptied"),
        pytest.param(failed(FORBIDDEN), SPOOLING, IN_ORDER, Fail(FORBIDDEN), id="an error for the caller"),
    ],
)
def test_section_10_in_session_order_what_follows_spooled_messages_is_spooled(
    history: AttemptHistory, health: EntityHealth, policy: SendPolicy, expected: Step
) -> None:
    assert step(history, health, policy=policy) == expected
    late = step(failed(LOST), HEALTHY, policy=policy, deadline=NOW)
    assert late == TimeOut(LOST), "nothing is spooled before all processes agree"


def test_section_10_a_part_of_what_was_not_diverted_is_spooled_too() -> None:
    part = NEW.not_diverted(NOT_DIVERTED).part()
    assert step(part, HEALTHY, policy=replace(POLICY, spools=True)) == Spool()


@pytest.mark.parametrize(
    "error", [RefusedError("no session"), MessageTooLargeError("large"), InvalidMessageError("bad")]
)
def test_section_10_what_the_service_says_of_one_message_of_the_spool_is_no_failure_of_its_entity(
    error: ServiceError,
) -> None:
    history = failed(error)
    assert step(history, messages=2) == Probe()
    assert step(history.probed(works_at=NOW), messages=2) == Split()
    history = failed(error, error, error, began=NOW - 1)
    assert step(history.probed(works_at=NOW)) == Refuse()
    nothing_works = history.probed(works_at=None)
    assert (step(nothing_works), nothing_works.counts) == (Fail(error), False)
