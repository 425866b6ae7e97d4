"""SPEC section 4, health per entity: healthy, suspect, failed over, and every way from one to another."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servicebus_pair.core.health import (
    HEALTHY,
    Action,
    EntityHealth,
    EntityMissing,
    FailOver,
    HealthEvent,
    MarkHealthy,
    PingFailed,
    PingSucceeded,
    SendFailed,
    SendSucceeded,
    State,
    decide,
    merge,
)

NOW = 1000.0
INTERVAL = 60.0
WELL = EntityHealth(State.HEALTHY, since=900.0, last_ping=800.0, reason="a ping was answered", by="ping")
SUSPECT = EntityHealth(State.SUSPECT, since=950.0, last_ping=800.0, reason="no connection", by="send")
OVERDUE = EntityHealth(State.SUSPECT, since=940.0, reason="no connection", by="send")
OUT = EntityHealth(State.FAILED_OVER, since=970.0, last_ping=990.0, reason="no connection", by="send")

FAILS_OVER = {Action.START_PING, Action.PUBLISH}
RECOVERS = {Action.STOP_PING, Action.PUBLISH}
NOTHING: set[Action] = set()


def failed(began: float = 995.0) -> SendFailed:
    return SendFailed("connection lost", began)


def healthy(reason: str, by: str, *, last_ping: float | None = 800.0) -> EntityHealth:
    return EntityHealth(State.HEALTHY, NOW, last_ping, reason, by)


DRILL = FailOver("drill", "ann")
BACK = MarkHealthy("drill over", "ann")
BY_PING = ("a ping was answered", "ping")
MISSING = ("the primary answered a ping that the entity does not exist", "ping")

TABLE: list[Any] = [
    pytest.param(WELL, SendSucceeded(), WELL, NOTHING, id="healthy: a success changes nothing"),
    pytest.param(
        WELL,
        failed(995.0),
        EntityHealth(State.SUSPECT, 995.0, 800.0, "connection lost", "send"),
        NOTHING,
        id="healthy: a failure that counts makes it suspect since the failing call began",
    ),
    pytest.param(
        WELL,
        failed(850.0),
        EntityHealth(State.FAILED_OVER, NOW, 800.0, "connection lost", "send"),
        FAILS_OVER,
        id="healthy: a call that failed for longer than the interval fails over",
    ),
    pytest.param(
        SUSPECT,
        failed(999.0),
        EntityHealth(State.SUSPECT, 950.0, 800.0, "connection lost", "send"),
        NOTHING,
        id="suspect: a further failure stays suspect since the first",
    ),
    pytest.param(
        OVERDUE,
        failed(999.0),
        EntityHealth(State.FAILED_OVER, NOW, None, "connection lost", "send"),
        FAILS_OVER,
        id="suspect: the interval without a success fails over",
    ),
    pytest.param(
        SUSPECT, SendSucceeded(), healthy("a send succeeded", "send"), NOTHING, id="suspect: any success makes healthy"
    ),
    pytest.param(
        SUSPECT,
        PingSucceeded(NOW),
        healthy(*BY_PING, last_ping=NOW),
        NOTHING,
        id="suspect: a ping's success makes healthy too",
    ),
    pytest.param(OUT, SendSucceeded(), OUT, NOTHING, id="failed over: the late success of an earlier send is no proof"),
    pytest.param(OUT, failed(), OUT, NOTHING, id="failed over: a late failure changes nothing"),
    pytest.param(
        OUT,
        PingSucceeded(NOW),
        healthy(*BY_PING, last_ping=NOW),
        RECOVERS,
        id="failed over: a ping's success makes healthy",
    ),
    pytest.param(
        OUT,
        PingFailed(NOW),
        EntityHealth(State.FAILED_OVER, 970.0, NOW, "no connection", "send"),
        {Action.PUBLISH},
        id="failed over: a failed ping is remembered and shared",
    ),
    pytest.param(
        WELL,
        PingSucceeded(NOW),
        EntityHealth(State.HEALTHY, 900.0, NOW, "a ping was answered", "ping"),
        NOTHING,
        id="healthy: a ping's success is remembered",
    ),
    pytest.param(
        OUT,
        EntityMissing(NOW),
        healthy(*MISSING, last_ping=NOW),
        RECOVERS,
        id="failed over: the primary answers that there is no such entity, which its sends must say",
    ),
    pytest.param(
        replace(OUT, held_until=NOW + 1),
        EntityMissing(NOW),
        replace(OUT, held_until=NOW + 1, last_ping=NOW),
        NOTHING,
        id="failed over by hand for a while: no answer ends that",
    ),
    pytest.param(
        SUSPECT,
        EntityMissing(NOW),
        healthy(*MISSING, last_ping=NOW),
        NOTHING,
        id="suspect: an answer is no outage",
    ),
    pytest.param(
        WELL, EntityMissing(NOW), replace(WELL, last_ping=NOW), NOTHING, id="healthy: what is missing is no outage"
    ),
    pytest.param(
        WELL,
        PingFailed(NOW),
        EntityHealth(State.HEALTHY, 900.0, NOW, "a ping was answered", "ping"),
        NOTHING,
        id="healthy: a failed ping proves nothing",
    ),
    pytest.param(
        SUSPECT,
        PingFailed(NOW),
        EntityHealth(State.SUSPECT, 950.0, NOW, "no connection", "send"),
        NOTHING,
        id="suspect: a failed ping changes no state",
    ),
    pytest.param(
        WELL,
        DRILL,
        EntityHealth(State.FAILED_OVER, NOW, 800.0, "drill", "ann"),
        FAILS_OVER,
        id="healthy: failover by hand is recorded with who and when",
    ),
    pytest.param(
        SUSPECT,
        DRILL,
        EntityHealth(State.FAILED_OVER, NOW, 800.0, "drill", "ann"),
        FAILS_OVER,
        id="suspect: failover by hand",
    ),
    pytest.param(OUT, DRILL, OUT, NOTHING, id="failed over: failover by hand keeps the first cause"),
    pytest.param(
        OUT,
        BACK,
        healthy("drill over", "ann", last_ping=990.0),
        RECOVERS,
        id="failed over: failback by hand is recorded with who and when",
    ),
    pytest.param(SUSPECT, BACK, healthy("drill over", "ann"), RECOVERS, id="suspect: failback by hand"),
    pytest.param(WELL, BACK, healthy("drill over", "ann"), RECOVERS, id="healthy: failback by hand is shared"),
]


@pytest.mark.parametrize(("before", "event", "after", "actions"), TABLE)
def test_section_4_health_changes(
    before: EntityHealth, event: HealthEvent, after: EntityHealth, actions: set[Action]
) -> None:
    decision = decide(before, event, now=NOW, failover_interval=INTERVAL)
    assert decision.health == after
    assert decision.actions == actions


def test_section_4_the_table_of_changes_is_complete() -> None:
    cases = {(param.values[0].state, type(param.values[1])) for param in TABLE}
    events = (SendSucceeded, SendFailed, PingSucceeded, EntityMissing, PingFailed, FailOver, MarkHealthy)
    assert cases == {(state, event) for state in State for event in events}


def test_section_2_a_failover_interval_of_zero_diverts_at_the_first_failure_that_counts() -> None:
    decision = decide(HEALTHY, failed(NOW), now=NOW, failover_interval=0)
    assert decision.health.failed_over
    assert decision.actions == FAILS_OVER


@pytest.mark.parametrize(("seconds", "state"), [(59.999, State.SUSPECT), (60.0, State.FAILED_OVER)])
def test_section_4_failures_of_an_entity_are_accepted_exactly_for_the_failover_interval(
    seconds: float, state: State
) -> None:
    first = decide(HEALTHY, failed(NOW), now=NOW, failover_interval=INTERVAL).health
    assert decide(first, failed(NOW), now=NOW + seconds, failover_interval=INTERVAL).health.state is state


def test_section_4_a_success_while_suspect_starts_the_interval_anew() -> None:
    suspect = decide(HEALTHY, failed(0.0), now=1.0, failover_interval=INTERVAL).health
    well = decide(suspect, SendSucceeded(), now=59.0, failover_interval=INTERVAL).health
    again = decide(well, failed(60.5), now=61.0, failover_interval=INTERVAL).health
    assert again == EntityHealth(State.SUSPECT, 60.5, None, "connection lost", "send")


def test_section_4_a_call_that_began_before_the_last_success_counts_from_that_success_only() -> None:
    suspect = decide(HEALTHY, failed(1.0), now=2.0, failover_interval=5.0).health
    well = decide(suspect, SendSucceeded(), now=4.0, failover_interval=5.0).health
    assert decide(well, failed(1.0), now=6.5, failover_interval=5.0).health.state is State.SUSPECT


events = st.one_of(
    st.builds(SendSucceeded),
    st.builds(SendFailed, st.just("x"), st.floats(0, 100)),
    st.builds(PingSucceeded, st.floats(0, 100)),
    st.builds(PingFailed, st.floats(0, 100)),
    st.builds(EntityMissing, st.floats(0, 100)),
    st.just(DRILL),
    st.just(BACK),
)


@settings(max_examples=200)
@given(happened=st.lists(st.tuples(events, st.floats(0, 30)), max_size=30), interval=st.floats(0, 60))
def test_section_4_only_failures_and_hands_fail_over_and_only_pings_and_hands_fail_back(
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
            assert decision.health.state is State.HEALTHY
            assert decision.actions == RECOVERS
        if decision.health.state is not health.state:
            assert decision.health.since <= now
        pinging = (pinging or Action.START_PING in decision.actions) and Action.STOP_PING not in decision.actions
        health = decision.health
        assert pinging is health.failed_over


@settings(max_examples=100)
@given(
    health=st.builds(
        EntityHealth,
        st.sampled_from(State),
        st.floats(0, 2e9),
        st.none() | st.floats(0, 2e9),
        st.text(max_size=20),
        st.text(max_size=20),
        st.none() | st.floats(0, 2e9),
    )
)
def test_section_4_health_is_shared_between_processes_as_json_without_null(health: EntityHealth) -> None:
    shared = json.loads(json.dumps(health.to_json()))
    assert None not in shared.values()
    assert EntityHealth.from_json(shared) == health


@pytest.mark.parametrize(
    "value",
    [
        {},
        {**OUT.to_json(), "state": "fine"},
        {**OUT.to_json(), "since": "now"},
        {**OUT.to_json(), "last_ping": None},
        {name: value for name, value in OUT.to_json().items() if name != "by"},
    ],
    ids=["empty", "unknown state", "no number", "null", "a field missing"],
)
def test_a_record_that_is_no_health_is_refused(value: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"not a health record|is not a valid State|could not convert"):
        EntityHealth.from_json(value)


def test_section_1_health_of_an_entity_begins_healthy() -> None:
    assert HEALTHY.state is State.HEALTHY
    assert not HEALTHY.failed_over
    assert HEALTHY.last_ping is None


OLDER = EntityHealth(State.FAILED_OVER, since=940.0, last_ping=995.0, reason="elsewhere", by="send")
NEWER = EntityHealth(State.FAILED_OVER, since=999.0, reason="elsewhere", by="send")


@pytest.mark.parametrize(
    ("mine", "shared", "believed"),
    [
        pytest.param(WELL, NEWER, replace(NEWER, last_ping=800.0), id="the newer state"),
        pytest.param(NEWER, WELL, replace(NEWER, last_ping=800.0), id="not the older one"),
        pytest.param(OUT, replace(OUT, last_ping=996.0), replace(OUT, last_ping=996.0), id="another's newer ping"),
        pytest.param(OUT, replace(OUT, last_ping=None), OUT, id="not another's older ping"),
        pytest.param(SUSPECT, OLDER, OLDER, id="suspect: a failover that others confirmed lately"),
        pytest.param(
            SUSPECT,
            replace(OLDER, last_ping=900.0),
            replace(SUSPECT, last_ping=900.0),
            id="suspect: not one that nobody has confirmed for long",
        ),
        pytest.param(
            SUSPECT,
            replace(OLDER, last_ping=970.0),
            replace(OLDER, last_ping=970.0),
            id="suspect: one that was confirmed just within the time",
        ),
        pytest.param(WELL, replace(OLDER, since=800.0), replace(WELL, last_ping=995.0), id="healthy: nothing older"),
    ],
)
def test_section_4_what_others_share_is_believed_when_it_is_newer_or_confirms(
    mine: EntityHealth, shared: EntityHealth, believed: EntityHealth
) -> None:
    assert merge(mine, shared, now=NOW, fresh=30.0) == believed


@given(ago=st.floats(0, 500), hold=st.floats(0.01, 500), failed_over=st.booleans())
def test_section_5_no_ping_ends_a_failover_by_hand_before_its_hold_is_over(
    ago: float, hold: float, failed_over: bool
) -> None:
    began = NOW - ago
    before = replace(OUT, since=900.0) if failed_over else WELL
    held = decide(before, FailOver("drill", "ann", hold), now=began, failover_interval=INTERVAL)
    assert Action.PUBLISH in held.actions, "other processes must know it"
    assert (Action.START_PING in held.actions) is not failed_over
    answered = decide(held.health, PingSucceeded(NOW), now=NOW, failover_interval=INTERVAL)
    assert answered.health.failed_over is held.health.held(NOW) is (began + hold > NOW)
    assert answered.health.last_ping == NOW
    by_hand = decide(held.health, BACK, now=NOW, failover_interval=INTERVAL)
    assert by_hand.health == healthy("drill over", "ann", last_ping=held.health.last_ping)


def test_section_5_a_hold_ends_at_its_time_and_one_of_no_time_is_none() -> None:
    held = decide(WELL, FailOver("drill", "ann", 10.0), now=NOW, failover_interval=INTERVAL).health
    assert (held.held_until, held.held(NOW + 9.9), held.held(NOW + 10.0)) == (NOW + 10.0, True, False)
    assert decide(WELL, FailOver("drill", "ann", 0.0), now=NOW, failover_interval=INTERVAL).health.held_until is None


@given(state=st.sampled_from(State), other=st.sampled_from(State))
def test_section_4_what_others_share_of_the_same_moment_is_no_news(state: State, other: State) -> None:
    mine = EntityHealth(state, since=900.0, last_ping=800.0, reason="mine", by="send")
    shared = EntityHealth(other, since=900.0, last_ping=700.0, reason="theirs", by="ping")
    assert merge(mine, shared, now=NOW, fresh=0.0) == mine
