"""How an entity is shown whose health tasks shared, or of which only its messages tell."""

from __future__ import annotations

import pytest

from servicebus_pair.core.health import EntityHealth, State
from servicebus_pair.ui.entities import entities_of
from servicebus_pair.ui.looking import Peeked
from servicebus_pair.ui.records import Note
from servicebus_pair.ui.snapshot import EntityView

OVER = EntityHealth(State.FAILED_OVER, 100.0, 130.0, "connection refused", "send")
WELL = EntityHealth(State.HEALTHY, 200.0, 200.0, "a ping was answered", "ping")


def shown(
    health: EntityHealth | None = None, *, waits_since: float | None = None, noted: dict[str, object] | None = None
) -> EntityView:
    state = {} if health is None else {"health/flights": health.to_json()}
    waiting = {} if waits_since is None else {"flights": 3}
    since = {} if waits_since is None else {"flights": waits_since}
    note = Note("sends", "run", "send", -1, "success", drains=False, notes={"v": 1} | ({} if noted is None else noted))
    (view,) = entities_of(state, Peeked(waiting=waiting, waits_since=since), [note], grace=60)
    return view


def test_what_tasks_shared_is_shown_with_since_when_and_by_whom():
    view = shown(OVER, waits_since=105.0)

    assert (view.state, view.since, view.by, view.reason) == ("failed_over", 100.0, "send", "connection refused")
    assert (view.last_ping, view.by_hand, view.waiting) == (130.0, False, 3)


def test_messages_in_the_backlog_show_a_failover_of_which_nobody_told():
    view = shown(waits_since=70.0)

    assert (view.state, view.since, view.waiting) == ("diverted", 70.0, 3)
    assert "a sender outside Airflow" in view.reason


@pytest.mark.parametrize(("waits_since", "state"), [(150.0, "healthy"), (259.0, "healthy"), (261.0, "diverted")])
def test_what_came_into_the_backlog_long_after_the_recovery_is_another_failover(waits_since: float, state: str):
    assert shown(WELL, waits_since=waits_since).state == state


@pytest.mark.parametrize(
    ("noted", "state"),
    [
        ({"entities": {"flights": [5, 0]}}, "healthy"),
        ({"home": {"flights": 9}, "entities": {"flights": [0, 9]}}, "healthy"),
        ({"entities": {"flights": [5, 1]}}, "unknown"),
    ],
)
def test_an_entity_that_accepted_what_tasks_sent_is_healthy_although_none_shared_so(
    noted: dict[str, object], state: str
):
    assert shown(noted=noted).state == state
