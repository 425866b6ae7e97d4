"""Health of an entity: every transition between healthy, suspect and failed over (SPEC sections 4 and 5)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.model.health_state import HEALTHY, EntityHealth, HealthState
from servicebus_pair.core.model.health_transitions import (
    AbandonFailback,
    Action,
    BeginFailback,
    BeginSpool,
    CaughtUp,
    CompleteFailback,
    EntityMissing,
    FailOver,
    FailOverBehind,
    HealthEvent,
    MarkHealthy,
    PingFailed,
    PingSucceeded,
    SendFailed,
    SendSucceeded,
    decide,
)
from tests.examples import examples

NOW = 1000.0
INTERVAL = 60.0
WELL = EntityHealth(HealthState.HEALTHY, since=900.0, last_ping=800.0, reason="a ping was answered", by="ping")
SUSPECT = EntityHealth(HealthState.SUSPECT, since=950.0, last_ping=800.0, reason="no connection", by="send")
OVERDUE = EntityHealth(HealthState.SUSPECT, since=940.0, reason="no connection", by="send")
OUT = EntityHealth(HealthState.FAILED_OVER, since=970.0, last_ping=990.0, reason="no connection", by="send")

FAILS_OVER = {Action.START_PING, Action.PUBLISH}
RECOVERS = {Action.STOP_PING, Action.PUBLISH}
NOTHING: set[Action] = set()


def failed(began: float = 995.0) -> SendFailed:
    return SendFailed("connection lost", began)


def healthy(reason: str, by: str, *, last_ping: float | None = 800.0, may_overtake: bool = False) -> EntityHealth:
    return EntityHealth(HealthState.HEALTHY, NOW, last_ping, reason, by, may_overtake=may_overtake)


DRILL = FailOver("drill", "ann")
BACK = MarkHealthy("drill over", "ann")


def suspect(since: float) -> EntityHealth:
    return EntityHealth(HealthState.SUSPECT, since, 800.0, "connection lost", "send")


def out(reason: str = "connection lost", by: str = "send", *, last_ping: float | None = 800.0) -> EntityHealth:
    return EntityHealth(HealthState.FAILED_OVER, NOW, last_ping, reason, by)


BY_PING = healthy("a ping was answered", "ping", last_ping=NOW)
MISSING = healthy("the primary answered a ping that the entity does not exist", "ping", last_ping=NOW)
HELD = replace(OUT, held_until=NOW + 1)
HOLDING = EntityHealth(
    HealthState.FAILING_BACK, since=990.0, last_ping=985.0, reason="answered", by="ping", epoch=4, token="t"
)


def ended(state: HealthState, reason: str, by: str) -> EntityHealth:
    return replace(HOLDING, state=state, since=NOW, reason=reason, by=by)


TABLE: list[Any] = [
    pytest.param(WELL, SendSucceeded(), WELL, NOTHING, id="healthy: success"),
    pytest.param(
        WELL, failed(995.0), suspect(995.0), NOTHING, id="healthy: failure, suspect from the start of the call"
    ),
    pytest.param(WELL, failed(850.0), out(), FAILS_OVER, id="healthy: call failed for longer than the interval"),
    pytest.param(WELL, PingSucceeded(NOW), replace(WELL, last_ping=NOW), NOTHING, id="healthy: ping success"),
    pytest.param(WELL, PingFailed(NOW), replace(WELL, last_ping=NOW), NOTHING, id="healthy: ping failure"),
    pytest.param(WELL, EntityMissing(NOW), replace(WELL, last_ping=NOW), NOTHING, id="healthy: entity missing"),
    pytest.param(WELL, DRILL, out("drill", "ann"), FAILS_OVER, id="healthy: manual failover"),
    pytest.param(WELL, BACK, healthy("drill over", "ann"), RECOVERS, id="healthy: manual failback"),
    pytest.param(SUSPECT, failed(999.0), suspect(950.0), NOTHING, id="suspect: failure within the interval"),
    pytest.param(OVERDUE, failed(999.0), out(last_ping=None), FAILS_OVER, id="suspect: failure after the interval"),
    pytest.param(SUSPECT, SendSucceeded(), healthy("a send succeeded", "send"), NOTHING, id="suspect: success"),
    pytest.param(SUSPECT, PingSucceeded(NOW), BY_PING, NOTHING, id="suspect: ping success"),
    pytest.param(SUSPECT, PingFailed(NOW), replace(SUSPECT, last_ping=NOW), NOTHING, id="suspect: ping failure"),
    pytest.param(SUSPECT, EntityMissing(NOW), MISSING, NOTHING, id="suspect: entity missing"),
    pytest.param(SUSPECT, DRILL, out("drill", "ann"), FAILS_OVER, id="suspect: manual failover"),
    pytest.param(SUSPECT, BACK, healthy("drill over", "ann"), RECOVERS, id="suspect: manual failback"),
    pytest.param(OUT, SendSucceeded(), OUT, NOTHING, id="failed over: late success"),
    pytest.param(OUT, failed(), OUT, NOTHING, id="failed over: late failure"),
    pytest.param(OUT, PingSucceeded(NOW), BY_PING, RECOVERS, id="failed over: ping success"),
    pytest.param(OUT, PingFailed(NOW), replace(OUT, last_ping=NOW), {Action.PUBLISH}, id="failed over: ping failure"),
    pytest.param(OUT, EntityMissing(NOW), MISSING, RECOVERS, id="failed over: entity missing"),
    pytest.param(HELD, EntityMissing(NOW), replace(HELD, last_ping=NOW), NOTHING, id="held: entity missing"),
    pytest.param(OUT, DRILL, OUT, NOTHING, id="failed over: manual failover keeps the first cause"),
    pytest.param(
        OUT,
        BACK,
        healthy("drill over", "ann", last_ping=990.0, may_overtake=True),
        RECOVERS,
        id="failed over: manual failback",
    ),
    pytest.param(HOLDING, SendSucceeded(), HOLDING, NOTHING, id="failing back: late success"),
    pytest.param(HOLDING, failed(), HOLDING, NOTHING, id="failing back: late failure"),
    pytest.param(
        HOLDING,
        PingSucceeded(NOW),
        replace(ended(HealthState.HEALTHY, "a ping was answered", "ping"), last_ping=NOW),
        RECOVERS,
        id="failing back: ping success, without session order",
    ),
    pytest.param(
        HOLDING,
        EntityMissing(NOW),
        replace(ended(HealthState.HEALTHY, MISSING.reason, "ping"), last_ping=NOW),
        RECOVERS,
        id="failing back: entity missing, without session order",
    ),
    pytest.param(HOLDING, PingFailed(NOW), replace(HOLDING, last_ping=NOW), set(), id="failing back: ping failure"),
    pytest.param(
        HOLDING, DRILL, ended(HealthState.FAILED_OVER, "drill", "ann"), FAILS_OVER, id="failing back: manual failover"
    ),
    pytest.param(
        HOLDING,
        BACK,
        replace(ended(HealthState.HEALTHY, "drill over", "ann"), may_overtake=True),
        RECOVERS,
        id="failing back: manual failback",
    ),
]


@pytest.mark.parametrize(("before", "event", "after", "actions"), TABLE)
def test_transition(before: EntityHealth, event: HealthEvent, after: EntityHealth, actions: set[Action]) -> None:
    decision = decide(before, event, now=NOW, failover_interval=INTERVAL)
    assert decision.health == after
    assert decision.actions == actions


def test_transition_table_is_complete() -> None:
    cases = {(param.values[0].state, type(param.values[1])) for param in TABLE}
    events = (SendSucceeded, SendFailed, PingSucceeded, EntityMissing, PingFailed, FailOver, MarkHealthy)
    assert cases == {(state, event) for state in HealthState for event in events}


BEGIN = BeginFailback("answered", "ping", "t")
FAILED_BACK = ended(HealthState.HEALTHY, "answered", "ping")
FAILED_OVER_AGAIN = ended(HealthState.FAILED_OVER, "a failback did not end: answered", "ping")
TO_SPOOL = BeginSpool("s", "no queue")
SPOOLING = replace(HELD, since=NOW, reason="no queue", by="send", spool="s")
UNSPOOLING = replace(SPOOLING, state=HealthState.FAILING_BACK, reason="answered", by="ping", token="t")
WELL_AGAIN = healthy(BACK.reason, BACK.by, may_overtake=True)
BEHIND = FailOverBehind("its backlog cannot be read")
UNSPOOLED = replace(UNSPOOLING, state=HealthState.FAILED_OVER, spool="")
FAILBACK_TABLE: list[Any] = [
    (WELL, BEGIN, WELL, NOTHING),
    (SUSPECT, BEGIN, SUSPECT, NOTHING),
    (replace(OUT, epoch=4), BEGIN, replace(HOLDING, since=NOW, last_ping=990.0), {Action.PUBLISH}),
    (replace(HELD, epoch=4), BEGIN, replace(HOLDING, since=NOW, last_ping=990.0), {Action.PUBLISH}),
    (HOLDING, BEGIN, HOLDING, NOTHING),
    (OUT, CompleteFailback("t"), OUT, NOTHING),
    (HOLDING, CompleteFailback("another"), HOLDING, NOTHING),
    (HOLDING, CompleteFailback("t"), FAILED_BACK, RECOVERS),
    (WELL, AbandonFailback("t"), WELL, NOTHING),
    (HOLDING, AbandonFailback("another"), HOLDING, NOTHING),
    (HOLDING, AbandonFailback("t"), FAILED_OVER_AGAIN, FAILS_OVER),
    # To the spool, and back to the backlog (section 10); a failover that is held by hand stays so.
    (WELL, TO_SPOOL, WELL, NOTHING),
    (HOLDING, TO_SPOOL, HOLDING, NOTHING),
    (HELD, TO_SPOOL, SPOOLING, {Action.PUBLISH}),
    (SPOOLING, BeginSpool("another", "no queue"), SPOOLING, NOTHING),
    (SPOOLING, BEGIN, SPOOLING, NOTHING),
    (SPOOLING, replace(BEGIN, spool="s"), UNSPOOLING, {Action.PUBLISH}),
    (HELD, replace(BEGIN, spool="s"), HELD, NOTHING),
    (UNSPOOLING, CompleteFailback("another"), UNSPOOLING, NOTHING),
    (UNSPOOLING, CompleteFailback("t"), UNSPOOLED, {Action.PUBLISH}),
    (UNSPOOLING, AbandonFailback("t"), replace(UNSPOOLED, spool="s", reason=FAILED_OVER_AGAIN.reason), FAILS_OVER),
    (SPOOLING, BACK, replace(WELL_AGAIN, last_ping=990.0), RECOVERS),
    # What is left behind is not overtaken, unless a person said so since the entity failed over.
    (WELL, BEHIND, out(BEHIND.reason, "session order"), FAILS_OVER),
    (OUT, BEHIND, OUT, NOTHING),
    (WELL_AGAIN, BEHIND, WELL_AGAIN, NOTHING),
    (WELL_AGAIN, BACK, WELL_AGAIN, RECOVERS),
    (
        WELL_AGAIN,
        failed(900.0),
        replace(WELL_AGAIN, state=HealthState.SUSPECT, reason="connection lost", by="send"),
        NOTHING,
    ),
    (replace(WELL_AGAIN, since=900.0), failed(900.0), out(), FAILS_OVER),
]


@pytest.mark.parametrize(("before", "event", "after", "actions"), FAILBACK_TABLE)
def test_section_6_failback_in_session_order(
    before: EntityHealth, event: HealthEvent, after: EntityHealth, actions: set[Action]
) -> None:
    decision = decide(before, event, now=NOW, failover_interval=INTERVAL)
    assert (decision.health, decision.actions) == (after, actions)


@pytest.mark.parametrize(
    ("before", "event", "settles"),
    [
        (SUSPECT, failed(999.0), None),  # still suspect
        (OVERDUE, failed(), 5.0),
        (WELL, DRILL, 5.0),
        (OUT, DRILL, None),
        (OUT, PingFailed(NOW), None),
        (OUT, BACK, 8.75),
        (OUT, TO_SPOOL, 8.75),
        (SPOOLING, TO_SPOOL, None),
        (SPOOLING, PingFailed(NOW), None),
        (UNSPOOLING, CompleteFailback("t"), 0.0),
        (OUT, BEGIN, 5.0),
        (HOLDING, CompleteFailback("t"), 0.0),
        (HOLDING, AbandonFailback("t"), 0.0),
        (HOLDING, DRILL, 10.0),
        (HOLDING, BACK, 10.0),
    ],
)
def test_section_6_each_change_of_route_is_a_new_epoch_that_settles(
    before: EntityHealth, event: HealthEvent, settles: float | None
) -> None:
    after = decide(before, event, now=NOW, failover_interval=INTERVAL, settle_seconds=5.0).health
    changes = settles is not None
    assert after.epoch == before.epoch + changes
    assert after.effective_at == (before.effective_at if settles is None else NOW + settles)
    assert ((after.route, after.spool) != (before.route, before.spool)) is changes


@pytest.mark.parametrize("health", [WELL, SUSPECT])
def test_section_6_in_session_order_a_healthy_entity_is_marked_healthy_without_writing_it(health: EntityHealth) -> None:
    decision = decide(health, BACK, now=NOW, failover_interval=INTERVAL, settle_seconds=5.0)
    assert decision.health.state is HealthState.HEALTHY
    assert Action.PUBLISH not in decision.actions


def test_section_4_a_failing_back_entity_counts_as_failed_over() -> None:
    assert HOLDING.failed_over
    assert replace(HOLDING, held_until=NOW + 1).is_held(NOW)
    assert SUSPECT.route is HealthState.HEALTHY


def test_zero_failover_interval_fails_over_at_first_failure() -> None:
    decision = decide(HEALTHY, failed(NOW), now=NOW, failover_interval=0)
    assert decision.health.failed_over
    assert decision.actions == FAILS_OVER


@pytest.mark.parametrize(("seconds", "state"), [(59.999, HealthState.SUSPECT), (60.0, HealthState.FAILED_OVER)])
def test_entity_fails_over_after_exactly_the_failover_interval(seconds: float, state: HealthState) -> None:
    first = decide(HEALTHY, failed(NOW), now=NOW, failover_interval=INTERVAL).health
    assert decide(first, failed(NOW), now=NOW + seconds, failover_interval=INTERVAL).health.state is state


def test_success_while_suspect_restarts_the_interval() -> None:
    suspect = decide(HEALTHY, failed(0.0), now=1.0, failover_interval=INTERVAL).health
    well = decide(suspect, SendSucceeded(), now=59.0, failover_interval=INTERVAL).health
    again = decide(well, failed(60.5), now=61.0, failover_interval=INTERVAL).health
    assert again == EntityHealth(HealthState.SUSPECT, 60.5, None, "connection lost", "send")


def test_failure_counts_only_from_the_last_success() -> None:
    suspect = decide(HEALTHY, failed(1.0), now=2.0, failover_interval=5.0).health
    well = decide(suspect, SendSucceeded(), now=4.0, failover_interval=5.0).health
    assert decide(well, failed(1.0), now=6.5, failover_interval=5.0).health.state is HealthState.SUSPECT


events = st.one_of(
    st.builds(SendSucceeded),
    st.builds(SendFailed, st.just("x"), st.floats(0, 100)),
    st.builds(PingSucceeded, st.floats(0, 100)),
    st.builds(PingFailed, st.floats(0, 100)),
    st.builds(EntityMissing, st.floats(0, 100)),
    st.just(DRILL),
    st.just(BACK),
)


@examples(200)
@given(happened=st.lists(st.tuples(events, st.floats(0, 30)), max_size=30), interval=st.floats(0, 60))
def test_only_failures_fail_over_and_only_pings_fail_back(
    happened: list[tuple[HealthEvent, float]], interval: float
) -> None:
    health, now, pinging = HEALTHY, 100.0, False
    for event, pause in happened:
        now += pause
        decision = decide(health, event, now=now, failover_interval=interval)
        if decision.health.failed_over and not health.failed_over:
            assert isinstance(event, SendFailed | FailOver)
            assert decision.actions == FAILS_OVER
        if health.failed_over and not decision.health.failed_over:
            assert isinstance(event, PingSucceeded | EntityMissing | MarkHealthy)
            assert decision.health.state is HealthState.HEALTHY
            assert decision.actions == RECOVERS
        if decision.health.state is not health.state:
            assert decision.health.since <= now
        pinging = (pinging or Action.START_PING in decision.actions) and Action.STOP_PING not in decision.actions
        health = decision.health
        assert pinging is health.failed_over


@given(ago=st.floats(0, 500), hold=st.floats(0.01, 500), failed_over=st.booleans())
def test_ping_does_not_end_a_held_manual_failover(ago: float, hold: float, failed_over: bool) -> None:
    began = NOW - ago
    before = replace(OUT, since=900.0) if failed_over else WELL
    held = decide(before, FailOver("drill", "ann", hold), now=began, failover_interval=INTERVAL)
    assert Action.PUBLISH in held.actions, "other processes must know it"
    assert (Action.START_PING in held.actions) is not failed_over
    answered = decide(held.health, PingSucceeded(NOW), now=NOW, failover_interval=INTERVAL)
    assert answered.health.failed_over is held.health.is_held(NOW) is (began + hold > NOW)
    assert answered.health.last_ping == NOW
    manual = decide(held.health, BACK, now=NOW, failover_interval=INTERVAL)
    assert manual.health == healthy("drill over", "ann", last_ping=held.health.last_ping, may_overtake=True)


@pytest.mark.parametrize(
    ("known", "reported", "found", "published"),
    [
        (set(), {1}, {1}, True),
        ({1}, {2}, {1, 2}, True),
        ({1}, {1, 2}, {1, 2}, True),
        ({1}, {1}, {1}, False),
        ({1, 2}, {1}, {1, 2}, False),
    ],
)
def test_section_6_what_syphons_report_is_added_up_and_published_once(
    known: set[int], reported: set[int], found: set[int], published: bool
) -> None:
    for state in HealthState:
        before = replace(OUT, state=state, caught_up=frozenset(known))
        decision = decide(before, CaughtUp(frozenset(reported)), now=NOW, failover_interval=INTERVAL)
        matters = state is HealthState.FAILED_OVER
        assert decision.health == (replace(before, caught_up=frozenset(found)) if matters else before)
        assert decision.actions == ({Action.PUBLISH} if matters and published else set())


def test_hold_ends_on_time() -> None:
    held = decide(WELL, FailOver("drill", "ann", 10.0), now=NOW, failover_interval=INTERVAL).health
    assert (held.held_until, held.is_held(NOW + 9.9), held.is_held(NOW + 10.0)) == (NOW + 10.0, True, False)
    assert decide(WELL, FailOver("drill", "ann", 0.0), now=NOW, failover_interval=INTERVAL).health.held_until is None
