from __future__ import annotations

from dataclasses import replace

import pytest

from servicebus_pair.core import PairSettings
from servicebus_pair.core.model.health_state import EntityHealth, HealthState
from servicebus_pair.core.sdk.administration.data_plane import QueueDepth
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from servicebus_pair.ui.sources.airflow_queries import Records, TaskActivity
from servicebus_pair.ui.sources.collector import PairStatus
from servicebus_pair.ui.view.view_builder import build_pair_view
from servicebus_pair.ui.views import NamespaceView, SpoolView
from tests.airflow.conftest import CONN_ID, UNREACHABLE, define_connection
from tests.airflow.support.versions import needs

NOW = 1_800_000_000.0
DEPTH = QueueDepth("contoso-primary/x-servicebus-transfer/0", active=300, scheduled=0, dead_lettered=0, size_bytes=1)
STATUS = PairStatus(primary=NamespaceView(name="a"), secondary=NamespaceView(name="b"), depths=[DEPTH], counted_at=NOW)


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> PairSettings:
    define_connection(monkeypatch, UNREACHABLE)
    return ServiceBusPairHook(CONN_ID).get_settings()


def test_invalid_connection_is_a_pair_with_a_problem():
    view = build_pair_view(CONN_ID, "conn_id 'contoso_pair': setting primary_host is ''", None, Records(), now=NOW)

    assert view.problem == "conn_id 'contoso_pair': setting primary_host is ''"
    assert (view.primary.name, view.entities, view.backlog.counted_at) == ("?", [], None)


def test_spools_of_other_machines_are_shown_the_oldest_first(settings: PairSettings):
    """SPEC section 10: a folder that is no shared mount is a spool of its own on each machine."""

    def sighting(messages: object, at: float = NOW - 60) -> dict[str, object]:
        return {"messages": messages, "oldest_at": at - 10, "at": at}

    here, young, old = (f"{name} on {name} in /mnt/spool" for name in ("here", "young", "old"))
    state: dict[str, object] = {
        here: sighting(9),
        young: sighting(2),
        old: sighting(3, NOW - 3600),
        "empty": sighting(0),
    }
    state |= {
        "gone": sighting(4, NOW - 15 * 86_400),
        "text": sighting("7"),
        "no mapping": 5,
        "forged\nline": sighting(8),
    }
    records = Records(states={CONN_ID: {"spools": state}})
    seen = replace(STATUS, spool=SpoolView(configured=True, messages={"flights": 9}, name=here))

    spool = build_pair_view(CONN_ID, settings, seen, records, now=NOW).spool

    assert spool.messages == {"flights": 9}
    assert [(each.name, each.messages) for each in spool.elsewhere] == [(old, 3), (young, 2)]
    for value in (None, 5, ["a"]):
        records = Records(states={CONN_ID: {"spools": value}})
        assert build_pair_view(CONN_ID, settings, seen, records, now=NOW).spool.elsewhere == []


@needs("task_state")
def test_drain_rate_and_eta_are_those_of_the_active_tasks(settings: PairSettings):
    def drain(map_index: int, state: str, syphoned: int, per_second: float) -> TaskActivity:
        counters = {"v": 1, "at": NOW - map_index, "syphoned": syphoned, "per_second": per_second}
        return TaskActivity("recovery", "run", "drain", map_index, state, drains=True, counters=counters)

    tasks = [
        drain(0, "success", 500, 90.0),
        drain(1, "running", 40, 8.0),
        drain(2, "running", 60, 2.0),
        drain(3, "deferred", 7, 9.0),
    ]

    syphon = build_pair_view(CONN_ID, settings, STATUS, Records(activities={CONN_ID: tasks}), now=NOW).syphon

    # The finished task counts, or the progress bar would go back when a task ends.
    assert (syphon.running, syphon.moved, syphon.per_second) == (3, 607, 10.0)
    assert (syphon.remaining, syphon.eta_seconds) == (300, 30.0)
    assert [task.map_index for task in syphon.drains] == [1, 2, 3, 0]


@pytest.mark.parametrize(
    ("counts", "per_second", "eta"),
    [
        ([(NOW - 30, 900), (NOW - 5, 350), (NOW, 300)], 20.0, 15.0),
        ([(NOW - 30, 100), (NOW, 300)], 0.0, None),
        ([(NOW, 300)], 0.0, None),
    ],
)
def test_drain_outside_airflow_is_detected_by_a_shrinking_backlog(
    settings: PairSettings, counts: list[tuple[float, int]], per_second: float, eta: float | None
):
    syphon = build_pair_view(CONN_ID, settings, replace(STATUS, counts=counts), Records(), now=NOW).syphon

    assert (syphon.running, syphon.per_second, syphon.eta_seconds) == (0, per_second, eta)


def test_session_queues_are_polled_on_a_quiet_day_as_well(settings: PairSettings):
    """SPEC section 6: 10 queues and no backlog are 960 receives a day."""
    ordered = replace(settings, options=replace(settings.options, ordering="session"))
    views = [build_pair_view(CONN_ID, each, STATUS, Records(), now=NOW) for each in (settings, ordered)]
    assert [view.cost.quiet_day for view in views] == [960, 1920]


def test_before_airflow_33_what_tasks_count_is_unknown_and_the_rate_is_that_of_the_backlog(
    settings: PairSettings, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("airflow.__version__", "3.2.2")
    task = TaskActivity("recovery", "run", "drain", -1, "running", drains=True, counters={})
    health = {"health/flights": EntityHealth(state=HealthState.FAILED_OVER, since=NOW - 60, reason="test").to_json()}
    records = Records(activities={CONN_ID: [task]}, states={CONN_ID: health})
    shrinking = replace(STATUS, counts=((NOW - 10, 400), (NOW, 300)))

    view = build_pair_view(CONN_ID, settings, shrinking, records, now=NOW)

    [entity], [drain] = view.entities, view.syphon.drains
    counts = (entity.primary, entity.backlog, entity.spooled, entity.drained, view.sends.primary, view.sends.backlog)
    assert {*counts, view.sends.spooled, view.syphon.moved, drain.moved, view.cost.total} == {None}
    syphon = view.syphon
    assert (entity.state, syphon.running, syphon.per_second, syphon.eta_seconds) == ("failed_over", 1, 10, 30)
