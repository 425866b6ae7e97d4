from __future__ import annotations

import pytest

from servicebus_pair.core.model.health_state import EntityHealth, HealthState
from servicebus_pair.ui.sources.airflow_queries import TaskActivity
from servicebus_pair.ui.sources.collector import PeekResult
from servicebus_pair.ui.view.entity_view import build_entity_views
from servicebus_pair.ui.views import EntityView

FAILED_OVER = EntityHealth(HealthState.FAILED_OVER, 100.0, 130.0, "connection refused", "send")
HEALTHY = EntityHealth(HealthState.HEALTHY, 200.0, 200.0, "ping succeeded", "ping")


def flights_view(
    health: object = None, *, waiting_since: float | None = None, counters: dict[str, object] | None = None
) -> EntityView:
    state = {} if health is None else {"health/flights": health}
    waiting = {} if waiting_since is None else {"flights": 3}
    since = {} if waiting_since is None else {"flights": waiting_since}
    task = TaskActivity("sends", "run", "send", -1, "success", drains=False, counters={"v": 1} | (counters or {}))
    (view,) = build_entity_views(state, PeekResult(waiting=waiting, waiting_since=since), [task], grace_seconds=60)
    return view


def test_shared_health_is_displayed():
    view = flights_view(FAILED_OVER.to_json(), waiting_since=105.0)

    assert (view.state, view.since, view.by, view.reason) == ("failed_over", 100.0, "send", "connection refused")
    assert (view.last_ping, view.by_hand, view.waiting) == (130.0, False, 3)


def test_section_6_a_failing_back_entity_is_displayed_as_such_and_not_as_manual():
    health = EntityHealth(
        HealthState.FAILING_BACK, since=100.0, last_ping=99.0, reason="a ping was answered", by="ping"
    )
    view = flights_view(health.to_json(), waiting_since=105.0)

    assert (view.state, view.since, view.by_hand) == ("failing_back", 100.0, False)


@pytest.mark.parametrize("value", [{"state": "exploded"}, 7])
def test_invalid_shared_health_is_unreadable(value: object):
    assert flights_view(value).state == "unreadable"


def test_messages_in_the_backlog_without_shared_health_mean_diverted():
    view = flights_view(waiting_since=70.0)

    assert (view.state, view.since, view.waiting) == ("diverted", 70.0, 3)
    assert "outside Airflow" in view.reason


@pytest.mark.parametrize(("waiting_since", "state"), [(150.0, "healthy"), (259.0, "healthy"), (261.0, "diverted")])
def test_messages_diverted_after_the_grace_period_mean_another_failover(waiting_since: float, state: str):
    assert flights_view(HEALTHY.to_json(), waiting_since=waiting_since).state == state


@pytest.mark.parametrize(
    ("counters", "state"),
    [
        ({"entities": {"flights": [5, 0]}}, "healthy"),
        ({"syphoned_by_entity": {"flights": 9}, "entities": {"flights": [0, 9]}}, "healthy"),
        ({"entities": {"flights": [5, 1]}}, "unknown"),
    ],
)
def test_health_is_inferred_from_accepted_messages(counters: dict[str, object], state: str):
    assert flights_view(counters=counters).state == state
