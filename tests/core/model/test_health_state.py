"""Health of an entity as it is shared between processes (SPEC sections 4 and 5)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.model.health_state import EntityHealth, HealthState, merge
from tests.examples import examples

NOW = 1000.0
WELL = EntityHealth(HealthState.HEALTHY, since=900.0, last_ping=800.0, reason="a ping was answered", by="ping")
SUSPECT = EntityHealth(HealthState.SUSPECT, since=950.0, last_ping=800.0, reason="no connection", by="send")
OUT = EntityHealth(HealthState.FAILED_OVER, since=970.0, last_ping=990.0, reason="no connection", by="send")


@examples(100)
@given(
    health=st.builds(
        EntityHealth,
        st.sampled_from(HealthState),
        st.floats(0, 2e9),
        st.none() | st.floats(0, 2e9),
        st.text(max_size=20),
        st.text(max_size=20),
        st.none() | st.floats(0, 2e9),
        st.integers(0, 9),
        st.floats(0, 2e9),
        st.text(max_size=5),
        st.frozensets(st.integers(0, 9)),
        st.text(max_size=5),
        st.booleans(),
    )
)
def test_json_round_trip_without_null(health: EntityHealth) -> None:
    shared = json.loads(json.dumps(health.to_json()))
    assert None not in shared.values()
    assert EntityHealth.from_json(shared) == health
    for added in ("held_until", "epoch", "effective_at", "token", "caught_up", "spool", "may_overtake"):
        del shared[added]  # as in records of earlier versions
    older = replace(
        health,
        held_until=None,
        epoch=0,
        effective_at=0.0,
        token="",
        caught_up=frozenset(),
        spool="",
        may_overtake=False,
    )
    assert EntityHealth.from_json(shared) == older


TIMES = ("since", "last_ping", "held_until", "effective_at")
# What whoever may write the shared state may write, and no calendar, browser or comparison takes.
NO_TIMES = (float("nan"), float("inf"), -(10**400), 10**400, 1e18, -1.5, 253_402_300_799.5)


@pytest.mark.parametrize(
    "value",
    [
        {},
        {**OUT.to_json(), "state": "fine"},
        {**OUT.to_json(), "since": "now"},
        {**OUT.to_json(), "last_ping": None},
        *({**OUT.to_json(), name: value} for name in TIMES for value in NO_TIMES),
        *({**OUT.to_json(), "epoch": float(each)} for each in ("inf", "nan")),
        [1],
        "text",
        {name: value for name, value in OUT.to_json().items() if name != "by"},
    ],
    ids=lambda value: str(value)[:60],
)
def test_invalid_json_record_is_rejected(value: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"not a health record|is not a valid HealthState|c(ould not|annot) convert"):
        EntityHealth.from_json(value)


def test_a_record_has_the_latest_time_and_no_long_text() -> None:
    latest = {**OUT.to_json(), **dict.fromkeys(TIMES, 253_402_300_799), "reason": "r" * 1001, "by": "b" * 1001}
    read = EntityHealth.from_json(latest)
    assert {getattr(read, name) for name in TIMES} == {253_402_300_799.0}
    assert (read.reason, read.by) == ("r" * 1000, "b" * 1000)


OLDER = EntityHealth(HealthState.FAILED_OVER, since=940.0, last_ping=995.0, reason="elsewhere", by="send")
NEWER = EntityHealth(HealthState.FAILED_OVER, since=999.0, reason="elsewhere", by="send")


@pytest.mark.parametrize(
    ("local", "shared", "merged"),
    [
        pytest.param(WELL, NEWER, replace(NEWER, last_ping=800.0), id="newer shared state"),
        pytest.param(NEWER, WELL, replace(NEWER, last_ping=800.0), id="older shared state"),
        pytest.param(OUT, replace(OUT, last_ping=996.0), replace(OUT, last_ping=996.0), id="newer shared ping"),
        pytest.param(OUT, replace(OUT, last_ping=None), OUT, id="older shared ping"),
        pytest.param(SUSPECT, OLDER, OLDER, id="suspect: recently confirmed failover"),
        pytest.param(
            SUSPECT,
            replace(OLDER, last_ping=900.0),
            replace(SUSPECT, last_ping=900.0),
            id="suspect: failover not confirmed recently",
        ),
        pytest.param(
            SUSPECT,
            replace(OLDER, last_ping=970.0),
            replace(OLDER, last_ping=970.0),
            id="suspect: failover confirmed exactly at the limit",
        ),
        pytest.param(WELL, replace(OLDER, since=800.0), replace(WELL, last_ping=995.0), id="healthy: older failover"),
    ],
)
def test_merge_takes_newer_state_and_confirmed_failover(
    local: EntityHealth, shared: EntityHealth, merged: EntityHealth
) -> None:
    assert merge(local, shared, now=NOW, max_age=30.0) == merged


@given(state=st.sampled_from(HealthState), other=st.sampled_from(HealthState))
def test_merge_keeps_local_state_of_the_same_time(state: HealthState, other: HealthState) -> None:
    mine = EntityHealth(state, since=900.0, last_ping=800.0, reason="mine", by="send")
    shared = EntityHealth(other, since=900.0, last_ping=700.0, reason="theirs", by="ping")
    assert merge(mine, shared, now=NOW, max_age=0.0) == mine
