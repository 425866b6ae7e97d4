"""How failovers, filled backlogs and recoveries become incidents."""

from __future__ import annotations

from dataclasses import replace

from servicebus_pair.ui.history import HealthEvent
from servicebus_pair.ui.incidents import incidents_of
from servicebus_pair.ui.runs import Run
from servicebus_pair.ui.snapshot import IncidentView


def event(
    part: str, at: float, *, entity: str = "flights", run: str = "one", started: tuple[str, ...] = ()
) -> HealthEvent:
    extra = {"entity": entity, "since": at - 1, "reason": "Unreachable", "by": "send" if part == "failover" else "ping"}
    return HealthEvent(
        part=part,
        at=at,
        extra=extra,
        source=Run("sends", run, "success"),
        started=tuple(Run("recovery", name, "success", {"report": "/x/report.html", "lost": 0}) for name in started),
    )


def test_a_failover_that_several_tasks_tell_of_is_one_incident_until_the_recovery():
    events = [
        event("recovery", 500, run="recovery"),
        event("failover", 120, run="two", started=("r2",)),
        event("failover", 100, run="one", started=("r1",)),
        event("failover", 900, run="three"),
    ]

    last, first = incidents_of(events, {})

    assert (first.at, first.until, first.ended_by) == (99, 499, "ping")
    assert [run.run_id for run in first.runs] == ["one", "r1", "two", "r2", "recovery"]
    assert [run.report for run in first.runs] == [False, True, False, True, False]
    assert first.runs[1].result == {"lost": 0}
    assert (last.at, last.until) == (899, None)


def test_an_entity_that_is_healthy_again_ends_its_incident_before_a_task_tells_so():
    (incident,) = incidents_of([event("failover", 100)], {"flights": (300.0, "anna")})

    assert (incident.until, incident.ended_by) == (300.0, "anna")


def test_entities_have_incidents_of_their_own():
    incidents = incidents_of([event("failover", 100), event("failover", 200, entity="gates")], {})

    assert [(incident.entity, incident.until) for incident in incidents] == [("gates", None), ("flights", None)]


def filled(at: float, *entities: object, started: str) -> HealthEvent:
    """The watcher sees messages in the backlog, which starts a recovery."""
    extra = {"from_trigger": True, "payload": {"messages": 7, "queues": 1, "entities": list(entities)}}
    return HealthEvent(part="backlog", at=at, extra=extra, source=None, started=(Run("recovery", started, "running"),))


def recovery(run: str, *, ended: float, **moved: int) -> Run:
    """A run that has reported what it moved."""
    report = {"report": "/x/report.html", "lost": 0, "moved": moved}
    return Run("recovery", run, "success", report, began=ended - 50, ended=ended)


def runs(incident: IncidentView) -> list[str]:
    return [run.run_id for run in incident.runs]


def test_messages_in_the_backlog_are_an_incident_although_their_sender_tells_nobody():
    events = [filled(100, "flights", "Delays", started="r1")]

    going_on = incidents_of(events, {})
    over = incidents_of(events, {}, [recovery("r1", ended=180, flights=5)])

    assert {each.entity: (each.at, each.until, each.by) for each in going_on} == {
        "flights": (100, None, "the watcher of the backlog"),
        "Delays": (100, None, "the watcher of the backlog"),
    }
    ends = {each.entity: (each.until, each.ended_by) for each in over}
    assert ends == {"flights": (180, "recovery"), "Delays": (None, "")}


def test_a_recovery_belongs_to_the_incident_whose_messages_it_moved_whatever_started_it():
    events = [event("failover", 100), event("recovery", 150), event("failover", 900)]
    by_hand, late = recovery("by hand", ended=300, flights=9), recovery("late", ended=999, FLIGHTS=1)

    last, first = incidents_of(events, {}, [late, by_hand, recovery("of another", ended=400, gates=1)])

    assert (runs(first), runs(last)) == (["one", "by hand"], ["one", "late"])


def test_a_job_that_tells_late_of_a_failover_tells_of_the_incident_that_its_backlog_began():
    told = HealthEvent(
        part="failover",
        at=400,
        extra={"entity": "flights", "since": 130, "reason": "5 messages were diverted", "by": "publish"},
        source=Run("pipeline", "p", "success"),
        started=(),
    )

    (incident,) = incidents_of([told, filled(120, "flights", started="r1")], {"flights": (150.0, "ping")})

    assert (incident.at, incident.until, incident.ended_by) == (120, 150.0, "ping")
    assert (incident.reason, incident.by, runs(incident)) == ("5 messages were diverted", "publish", ["r1", "p"])


def test_the_rest_of_a_backlog_is_no_new_incident_and_what_comes_after_it_was_emptied_is():
    outage = [event("failover", 100), event("recovery", 150)]
    rest, later = filled(160, "flights", started="r1"), filled(900, "flights", started="r2")
    emptied = recovery("r1", ended=300, flights=9)

    (one,) = incidents_of([*outage, rest], {})
    new, old = incidents_of([*outage, rest, later], {}, [emptied])

    assert runs(one) == ["one", "r1"]
    assert (old.at, old.until, new.at, new.until) == (99, 149, 900, None)
    assert (runs(old), runs(new)) == (["one", "r1"], ["r2"])


def test_an_incident_whose_messages_could_not_be_delivered_is_over_when_its_recovery_has_succeeded():
    seen = filled(100, "no/such", started="r1")
    (run,) = seen.started

    (going_on,) = incidents_of([seen], {})
    (over,) = incidents_of([replace(seen, started=(replace(run, state="success", ended=180.0),))], {})

    assert (going_on.until, over.until, over.ended_by) == (None, 180.0, "recovery")


def test_what_a_watcher_of_somebody_else_wrote_is_no_incident():
    strange = [
        HealthEvent(part="backlog", at=1, extra=extra, source=None, started=())
        for extra in ({}, {"payload": 3}, {"payload": {"entities": "flights"}}, {"payload": {"entities": [None, 7]}})
    ]

    assert incidents_of(strange, {}, [Run("recovery", "r", "success", {"moved": [1]})]) == []
