from __future__ import annotations

from dataclasses import replace

from servicebus_pair.ui.sources.event_queries import HealthEvent
from servicebus_pair.ui.sources.run_queries import Run
from servicebus_pair.ui.view.incident_view import build_incident_views
from servicebus_pair.ui.views import IncidentView


def event(
    kind: str, at: float, *, entity: str = "flights", run: str = "one", triggered: tuple[str, ...] = ()
) -> HealthEvent:
    extra = {"entity": entity, "since": at - 1, "reason": "Unreachable", "by": "send" if kind == "failover" else "ping"}
    report = {"report": "/x/report.html", "lost": 0}
    return HealthEvent(
        kind=kind,
        at=at,
        extra=extra,
        source_run=Run("sends", run, "success"),
        triggered_runs=tuple(Run("recovery", name, "success", report) for name in triggered),
    )


def backlog_event(at: float, *entities: object, triggered: str) -> HealthEvent:
    extra = {"from_trigger": True, "payload": {"messages": 7, "queues": 1, "entities": list(entities)}}
    runs = (Run("recovery", triggered, "running"),)
    return HealthEvent(kind="backlog", at=at, extra=extra, source_run=None, triggered_runs=runs)


def recovery(run: str, *, ended_at: float, **moved: int) -> Run:
    report = {"report": "/x/report.html", "lost": 0, "moved": moved}
    return Run("recovery", run, "success", report, started_at=ended_at - 50, ended_at=ended_at)


def run_ids(incident: IncidentView) -> list[str]:
    return [run.run_id for run in incident.runs]


def test_failovers_reported_by_several_tasks_are_one_incident_until_the_recovery():
    events = [
        event("recovery", 500, run="recovery"),
        event("failover", 120, run="two", triggered=("r2",)),
        event("failover", 100, run="one", triggered=("r1",)),
        event("failover", 900, run="three"),
    ]

    last, first = build_incident_views(events, {})

    assert (first.at, first.until, first.ended_by) == (99, 499, "ping")
    assert run_ids(first) == ["one", "r1", "two", "r2", "recovery"]
    assert [run.report for run in first.runs] == [False, True, False, True, False]
    assert first.runs[1].reported == {"lost": 0}
    assert (last.at, last.until) == (899, None)


def test_shared_health_ends_an_incident_before_the_recovery_event():
    (incident,) = build_incident_views([event("failover", 100)], {"flights": (300.0, "anna")})

    assert (incident.until, incident.ended_by) == (300.0, "anna")


def test_each_entity_has_its_own_incident():
    incidents = build_incident_views([event("failover", 100), event("failover", 200, entity="gates")], {})

    assert [(incident.entity, incident.until) for incident in incidents] == [("gates", None), ("flights", None)]


def test_backlog_event_alone_is_an_incident_until_its_messages_are_drained():
    events = [backlog_event(100, "flights", "Delays", triggered="r1")]

    ongoing = build_incident_views(events, {})
    drained = build_incident_views(events, {}, [recovery("r1", ended_at=180, flights=5)])

    assert {each.entity: (each.at, each.until, each.by) for each in ongoing} == {
        "flights": (100, None, "backlog watcher"),
        "Delays": (100, None, "backlog watcher"),
    }
    ends = {each.entity: (each.until, each.ended_by) for each in drained}
    assert ends == {"flights": (180, "recovery"), "Delays": (None, "")}


def test_recovery_belongs_to_the_incident_whose_messages_it_moved():
    events = [event("failover", 100), event("recovery", 150), event("failover", 900)]
    manual, late = recovery("manual", ended_at=300, flights=9), recovery("late", ended_at=999, FLIGHTS=1)

    last, first = build_incident_views(events, {}, [late, manual, recovery("other", ended_at=400, gates=1)])

    assert (run_ids(first), run_ids(last)) == (["one", "manual"], ["one", "late"])


def test_late_failover_event_joins_the_incident_of_the_backlog_event():
    late = HealthEvent(
        kind="failover",
        at=400,
        extra={"entity": "flights", "since": 130, "reason": "5 messages were diverted", "by": "publish"},
        source_run=Run("pipeline", "p", "success"),
        triggered_runs=(),
    )

    (incident,) = build_incident_views(
        [late, backlog_event(120, "flights", triggered="r1")], {"flights": (150.0, "ping")}
    )

    assert (incident.at, incident.until, incident.ended_by) == (120, 150.0, "ping")
    assert (incident.reason, incident.by, run_ids(incident)) == ("5 messages were diverted", "publish", ["r1", "p"])


def test_backlog_event_is_a_new_incident_only_after_the_backlog_was_emptied():
    outage = [event("failover", 100), event("recovery", 150)]
    soon, later = backlog_event(160, "flights", triggered="r1"), backlog_event(900, "flights", triggered="r2")

    (one,) = build_incident_views([*outage, soon], {})
    new, old = build_incident_views([*outage, soon, later], {}, [recovery("r1", ended_at=300, flights=9)])

    assert run_ids(one) == ["one", "r1"]
    assert (old.at, old.until, new.at, new.until) == (99, 149, 900, None)
    assert (run_ids(old), run_ids(new)) == (["one", "r1"], ["r2"])


def test_successful_recovery_ends_an_incident_whose_messages_were_dead_lettered():
    watched = backlog_event(100, "no/such", triggered="r1")
    (run,) = watched.triggered_runs

    (ongoing,) = build_incident_views([watched], {})
    (over,) = build_incident_views(
        [replace(watched, triggered_runs=(replace(run, state="success", ended_at=180.0),))], {}
    )

    assert (ongoing.until, over.until, over.ended_by) == (None, 180.0, "recovery")


def test_malformed_backlog_events_are_ignored():
    malformed = [
        HealthEvent(kind="backlog", at=1, extra=extra, source_run=None, triggered_runs=())
        for extra in ({}, {"payload": 3}, {"payload": {"entities": "flights"}}, {"payload": {"entities": [None, 7]}})
    ]

    assert build_incident_views(malformed, {}, [Run("recovery", "r", "success", {"moved": [1]})]) == []


def test_the_proof_that_a_recovery_started_belongs_to_its_incident():
    report = {"report": True, "lost": 0}
    proof = Run("proof", "p1", "success", report, started_at=410, ended_at=900)
    drained = HealthEvent(
        kind="drained",
        at=400,
        extra={"moved": {"Flights": 3}},
        source_run=Run("recovery", "r1", "success", {"moved": {"flights": 3}}),
        triggered_runs=(proof,),
    )

    last, first = build_incident_views(
        [event("failover", 100), drained, event("recovery", 300), event("failover", 500)], {}
    )

    assert (run_ids(first), run_ids(last)) == (["one", "r1", "p1"], ["one"])
    assert (first.runs[2].report, first.runs[2].reported) == (True, {"lost": 0})
    assert (first.until, last.until) == (299, None)
