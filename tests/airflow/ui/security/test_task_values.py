"""What a task stores takes no pair off the page, and ends no incident that the page sees go on."""

from __future__ import annotations

import json
import time
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from servicebus_pair.core import read_pair_settings
from servicebus_pair.core.model.health_state import EntityHealth, HealthState
from servicebus_pair.ui.cache import refresh_cache
from servicebus_pair.ui.cache.refresh_cache import RefreshCache
from servicebus_pair.ui.sources.airflow_queries import Records, TaskActivity
from servicebus_pair.ui.sources.collector import PairStatus
from servicebus_pair.ui.sources.event_queries import HealthEvent
from servicebus_pair.ui.sources.run_queries import Run
from servicebus_pair.ui.sources.task_values import are_counters, cost_report, event_extra, numbers_of, read_json
from servicebus_pair.ui.view.incident_view import build_incident_views
from servicebus_pair.ui.view.view_builder import build_pair_view
from servicebus_pair.ui.views import NamespaceView, SpoolView
from tests.airflow.conftest import UNREACHABLE
from tests.security.canaries import CANARIES, disclosed

NAN, ENDLESS, HUGE = float("nan"), float("inf"), 10**400
HOSTILE = ["text", None, True, NAN, ENDLESS, HUGE, -1, 2**53 + 1, [1], {"deep": {"er": 1}}, {"a": "b"}, "x" * 3_000_000]
COUNTERS = {
    "v": 1,
    "sends": [[5, 1, 2], [6, 1, 2, 3]],
    "entities": {"flights": [1, 2], "gates": [1, 2, 3]},
    "unspooled": 2,
    "syphoned": 3,
    "syphoned_by_entity": {"flights": 3},
    "dead_lettered": {"expired": 1},
    "per_second": 0.5,
    "operations": {"sends": 4},
    "at": 9.5,
}


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda value: str(value)[:10])
def test_results_are_reduced_to_numbers(hostile: Any):
    shown = numbers_of({"moved": {"flights": 3, "other": hostile}, "lost": hostile, "seconds": 2.5})

    assert shown["moved"]["flights"] == 3
    assert shown["seconds"] == 2.5
    assert shown.get("lost", {}) == {}
    assert len(json.dumps(shown, allow_nan=False)) < 100


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda value: str(value)[:10])
def test_counters_of_another_shape_are_ignored(hostile: Any):
    assert are_counters(COUNTERS)
    for name in COUNTERS.keys() - {"v"}:
        assert not are_counters({**COUNTERS, name: hostile}), name
        assert not are_counters({**COUNTERS, name: {"flights": hostile}}), name


@pytest.mark.parametrize(
    "other",
    [
        {"at": 253_402_300_800},  # of which a browser makes no date
        {"sends": [[5.5, 1, 2]]},
        {"entities": {"x" * 501: [1, 2]}},
        {"operations": {"x" * 501: 1}},
    ],
    ids=str,
)
def test_counters_have_times_that_exist_and_names_that_are_shown(other: Any):
    assert not are_counters({**COUNTERS, **other})


def test_results_have_no_more_names_than_a_namespace_has_entities():
    moved = {"x" * 501: 1} | {f"queue{number}": 1 for number in range(10_001)}
    shown = numbers_of({"moved": moved})["moved"]
    assert (len(shown), "queue0" in shown, "x" * 501 in shown) == (10_000, True, False)


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda value: str(value)[:10])
def test_a_cost_report_is_reduced_to_its_totals(hostile: Any):
    total = {"total": 5, "billable": 1, "amount": "0.01"}
    valid = {"planned": total, "measured": None, "prices": {"as_of": "2026-01-01", "currency": "EUR"}, "more": hostile}

    assert cost_report(valid) == {"planned": total, "prices": valid["prices"]}
    for each in ({"planned": hostile}, {"planned": {**total, "total": hostile}}, {"prices": hostile}):
        assert len(json.dumps(cost_report(each), allow_nan=False)) < 100


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda value: str(value)[:10])
def test_an_event_is_reduced_to_what_the_page_reads(hostile: Any):
    names = ("entity", "reason", "by", "since", "payload", "moved", "more")
    for extra in (hostile, dict.fromkeys(names, hostile), {"payload": {"entities": [hostile] * 5000}}):
        reduced = event_extra(extra)
        event = HealthEvent("failover", 5.0, reduced, None, ())
        build_incident_views([event, replace(event, kind="backlog"), replace(event, kind="drained")], {})
        assert len(json.dumps(reduced, allow_nan=False)) < 1_000_000
    assert event_extra({"entity": "flights", "since": 5, "moved": {"a": 1, "b": hostile}})["moved"]["a"] == 1
    assert event_extra({"entity": ["flights"], "since": 253_402_300_800}) == {}


@pytest.mark.parametrize("canary", [*map(str, CANARIES.values())], ids=CANARIES)
def test_an_event_shows_no_secret_and_no_control_character(canary: str):
    """Whoever may create asset events writes their extra."""
    text = f"{canary} \x1b[31m\n\u202e{'x' * 455} {canary}"
    extra = event_extra({"entity": text, "reason": text, "by": text, "payload": {"entities": [text, canary]}})
    kinds = ("failover", 1.0), ("recovery", 2.0), ("backlog", 3.0)
    incidents = build_incident_views([HealthEvent(kind, at, extra, None, ()) for kind, at in kinds], {})

    assert {each.by == "backlog watcher" for each in incidents} == {True, False}
    shown = [text for each in incidents for text in (each.entity, each.reason, each.by, each.ended_by)]
    assert all(len(text) <= 500 and text.isprintable() and not disclosed(text) for text in shown)


@pytest.mark.parametrize("canary", [*map(str, CANARIES.values())], ids=CANARIES)
def test_health_and_the_control_of_the_syphon_show_no_secret_and_no_control_character(canary: str):
    """Whoever may edit an asset writes its state."""
    text, health = f"{canary} \x1b[31m\n", EntityHealth(HealthState.FAILED_OVER, since=1.0).to_json()
    control: dict[str, Any] = {"paused": True, "rate": 1, "at": 1}
    state = {f"health/{name}": {**health, name: text} for name in ("reason", "by", "state", "since", "caught_up")}
    state["syphon_control"] = {**control, **dict.fromkeys(("by", "reason", "rate_by", "rate_reason"), text)}
    view = build_pair_view("pair", read_pair_settings(UNREACHABLE), None, Records(states={"pair": state}), now=5.0)

    unreadable = [each.entity for each in view.entities if each.state == "unreadable"]
    assert unreadable == ["caught_up", "since", "state"]
    syphon = view.syphon
    shown = [syphon.by, syphon.reason, syphon.rate_by, syphon.rate_reason]
    shown += [text for each in view.entities for text in (each.by, each.reason)]
    assert all(text.isprintable() and not disclosed(text) for text in shown)


def test_events_with_many_names_are_grouped_in_a_time_that_does_not_multiply():
    moved = {f"queue{number}": 1 for number in range(1000)}
    events = [HealthEvent("drained", 5.0, {"moved": moved}, None, ()) for _ in range(300)]
    events.append(HealthEvent("backlog", 4.0, {"payload": {"entities": [*moved]}}, None, ()))
    started = time.process_time()
    assert len(build_incident_views(events, {})) == 50
    # 0.3 s, where each entity read all names of all events: 40 s.
    assert time.process_time() - started < 5


def test_many_names_are_grouped_in_a_time_that_does_not_multiply_and_hide_no_failover():
    names = [[f"{event}/{number}" for number in range(1000)] for event in range(300)]
    events = [HealthEvent("backlog", 5.0, {"payload": {"entities": each}}, None, ()) for each in names]
    runs = [
        Run("recovery", str(at), "success", {"moved": dict.fromkeys(names[0], 1)}, ended_at=at) for at in range(300)
    ]
    events.append(HealthEvent("failover", 6.0, {"entity": "0/0"}, runs[-1], tuple(runs)))
    started = time.process_time()
    incidents = build_incident_views(events, {}, runs)
    # 0.6 s, where each of 300,000 entities looked into each of 300 runs: minutes.
    assert time.process_time() - started < 10
    assert [each.entity for each in incidents if each.by != "backlog watcher"] == ["0/0"]
    assert {len(each.runs) for each in incidents} <= set(range(101))
    # Those of the newest incidents are shown, as far as they have room.
    shown = sum(len(run.reported["moved"]) for each in incidents for run in each.runs if "moved" in run.reported)
    assert shown == 50_000


def test_large_and_deep_json_is_not_read():
    assert read_json(json.dumps("x" * 2**20)) is None
    assert read_json("[" * 100_000) is None


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda value: str(value)[:10])
def test_state_of_another_shape_takes_no_pair_off_the_page(hostile: Any):
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    control = {"paused": True, "rate": 0, "by": "anna", "reason": "a test", "at": 5}
    sighting = {"messages": 1, "oldest_at": 1.0, "at": 5.0}
    health = {"state": "healthy", "since": 1, "last_ping": 2, "reason": "", "by": ""}
    for value in (hostile, deep):
        state = {
            **{f"health/{name}": {**health, name: value} for name in health},
            **{f"health/of {name}": value for name in health},
            "syphon_control": {**control, "at": value},
            "spools": {name: {**sighting, name: value} for name in sighting} | {"sound": sighting},
        }
        status = PairStatus(
            primary=NamespaceView(name="1"), secondary=NamespaceView(name="2"), spool=SpoolView(configured=True)
        )
        records = Records(states={"pair": state})
        shown = build_pair_view("pair", read_pair_settings(UNREACHABLE), status, records, now=10.0)
        encoded = json.loads(refresh_cache._encode(shown))
        assert len(encoded["entities"]) == 2 * len(health)
        assert encoded["syphon"]["at"] in {None, 1.0}
        assert {each["name"] for each in encoded["spool"]["elsewhere"]} >= {"sound"}
        for by in ("by", "reason", "rate"):
            records = Records(states={"pair": {"syphon_control": {**control, by: value}}})
            refresh_cache._encode(build_pair_view("pair", read_pair_settings(UNREACHABLE), status, records, now=10.0))
    del deep


def test_a_number_that_no_browser_reads_takes_its_own_pair_off_the_page_only(monkeypatch: pytest.MonkeyPatch):
    settings = read_pair_settings(UNREACHABLE)
    task = TaskActivity("dag", "run", "task", -1, "running", drains=True, counters={**COUNTERS, "per_second": NAN})
    monkeypatch.setattr(refresh_cache, "load_pair_settings", lambda _: {"bad": settings, "good": settings})
    monkeypatch.setattr(refresh_cache, "read_records", lambda _: Records(activities={"bad": [task]}))
    with closing(RefreshCache(interval=0.2, pairs=[])) as cache:
        deadline = time.monotonic() + 20
        while not (pairs := cache.get().pairs) and time.monotonic() < deadline:
            time.sleep(0.05)

    problems = {name: json.loads(view, parse_constant=pytest.fail)["problem"] for name, view in pairs.items()}
    assert problems == {"bad": "its data cannot be displayed: ValueError", "good": None}


def test_no_text_of_others_turns_the_direction_of_writing_on_the_page():
    settings, spoofed = read_pair_settings(UNREACHABLE), "exe\u202egpj.\u2066"
    control = {"paused": True, "rate": 0, "by": spoofed, "reason": f"\\{spoofed}\\", "at": 5, "rate_by": "x" * 10**6}
    records = Records(states={"pair": {"syphon_control": control}})
    shown = refresh_cache._encode(build_pair_view("pair", settings, None, records, now=10.0))

    syphon = json.loads(shown)["syphon"]
    assert (syphon["by"], syphon["reason"]) == (r"exe\u202egpj.\u2066", r"\exe\u202egpj.\u2066" + "\\")
    assert len(shown) < 10_000


def test_the_end_that_a_task_reports_is_marked_and_does_not_count_while_older_messages_wait():
    watched = HealthEvent("backlog", 100, {"payload": {"entities": ["Flights"]}}, None, ())
    recovery = Run("recovery", "r", "success", {"moved": {"flights": 5}}, started_at=110, ended_at=180)

    def incident(**waiting: float) -> Any:
        return build_incident_views([watched], {}, [recovery], waiting_since=waiting)[0]

    ended = incident()
    assert (ended.until, ended.ended_by, ended.end_reported) == (180, "recovery", True)
    assert incident(flights=190.0, gates=1.0) == ended
    assert incident(flights=120.0) == replace(ended, until=None, ended_by="", end_reported=False)
    # What the shared health says needs no such mark.
    failover = HealthEvent("failover", 100, {"entity": "flights"}, None, ())
    assert not build_incident_views([failover], {"flights": (300.0, "anna")}, [recovery])[0].end_reported


@pytest.mark.parametrize("since", [NAN, ENDLESS, -1, "soon", None])
def test_the_time_of_an_event_is_that_of_airflow_if_its_own_is_none(since: Any):
    extra = {"entity": "x" * 5000, "reason": "y" * 5000, "by": "z" * 5000, "since": since}
    (found,) = build_incident_views([HealthEvent("failover", 100, extra, None, ())], {})

    assert (found.at, len(found.entity), len(found.reason), len(found.by)) == (100, 500, 500, 500)
