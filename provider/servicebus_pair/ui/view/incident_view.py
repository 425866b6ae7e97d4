"""Groups failover, backlog and recovery events of a month into incidents.

A sender in Airflow emits a failover event. A sender outside Airflow, such as a Spark job, does not; the backlog watcher
then names the entities with messages in the backlog. Either event starts an incident, and both together are one. A
recovery that moved messages emits an event too, which started the proof of that recovery.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from servicebus_pair.core.model import printable
from servicebus_pair.ui.sources.event_queries import HealthEvent
from servicebus_pair.ui.sources.run_queries import Run
from servicebus_pair.ui.views import IncidentView, RunView

_KINDS: Final = ("failover", "recovery", "backlog", "drained")
_MAX_INCIDENTS: Final = 50
_MAX_RUNS: Final = 100
# Of entities in all events, and in all results that are shown: any task may write them.
_MAX_NAMES: Final = 50_000
_DISPLAYED_RESULTS: Final = ("moved", "dead_lettered", "lost", "seconds", "duplicates_possible")
_BACKLOG_WATCHER: Final = "backlog watcher"
_BACKLOG_REASON: Final = "messages in the backlog"
_NOTHING: Final[Mapping[str, float]] = {}
_NEVER: Final = float("inf")
# Of a reason or a name in an event.
_MAX_CHARACTERS: Final = 500
_TEXTS: Final = ("entity", "reason", "by", "ended_by")


def build_incident_views(
    events: Sequence[HealthEvent],
    healthy: Mapping[str, tuple[float, str]],
    recoveries: Sequence[Run] = (),
    *,
    waiting_since: Mapping[str, float] = _NOTHING,
) -> list[IncidentView]:
    """Return the incidents, newest first.

    An incident lasts from the first failover event of an entity to its next recovery, however many tasks report the
    failover, and includes the runs of all of them and of every recovery that moved its messages.

    :param events: in any order.
    :param healthy: for each entity that is healthy now, by casefolded path: since when, and who reported it. Their
        tasks may not have emitted the recovery event yet.
    :param recoveries: runs that reported moved messages.
    :param waiting_since: since when messages for an entity are in the backlog, as far as the page has peeked, by
        casefolded path. A recovery that reports an incident's end does not end it while older messages wait.
    """
    named = sorted(_named(events), key=lambda each: _start_time(each[1]))
    events_by_entity: dict[str, list[tuple[str, HealthEvent]]] = {}
    drained: dict[str, list[HealthEvent]] = {}
    for entity, event in named:
        if event.kind == "drained":
            drained.setdefault(entity.casefold(), []).append(event)
        else:
            events_by_entity.setdefault(entity.casefold(), []).append((entity, event))
    moved: dict[str, list[Run]] = {}
    for run in sorted(recoveries, key=_ended_at):
        for entity in _moved_messages(run):
            moved.setdefault(entity, []).append(run)
    incidents: list[IncidentView] = []
    for entity, entity_events in events_by_entity.items():
        moving = moved.get(entity, [])
        emptying = _emptying_runs(entity_events, moving)
        found = _incidents_of(entity_events, healthy.get(entity), emptying)
        if found[-1:] and found[-1].end_reported and waiting_since.get(entity, _NEVER) < (found[-1].until or 0.0):
            found[-1] = replace(found[-1], until=None, ended_by="", end_reported=False)
        incidents += _with_proofs(_with_recoveries(found, moving), drained.get(entity, ()))
    return _limited(sorted(incidents, key=lambda each: each.at, reverse=True)[:_MAX_INCIDENTS])


def build_run_view(run: Run) -> RunView:
    """Return the displayed values of a run."""
    return RunView(
        dag_id=run.dag_id,
        run_id=run.run_id,
        state=run.state,
        report=bool(run.report.get("report")),
        reported={name: run.report[name] for name in _DISPLAYED_RESULTS if run.report.get(name) is not None},
    )


def _named(events: Iterable[HealthEvent]) -> list[tuple[str, HealthEvent]]:
    """Return each event with each entity that it names: first those that name one, and of each kind the newest."""
    ranked = sorted(events, key=lambda event: (_KINDS.index(event.kind), -event.at))
    return list(islice(((entity, event) for event in ranked for entity in _entities(event)), _MAX_NAMES))


def _limited(incidents: Sequence[IncidentView]) -> list[IncidentView]:
    """Return the incidents without secrets, and with the mappings of their newest results up to a number of names."""
    room, limited = _MAX_NAMES, []
    for incident in incidents:
        runs = []
        for run in incident.runs:
            room -= sum(len(value) for value in run.reported.values() if isinstance(value, Mapping))
            runs.append(run if room >= 0 else replace(run, reported={}))
        # Only what is shown is masked: masking the names in all events would take seconds.
        shown: dict[str, Any] = {name: printable(getattr(incident, name))[:_MAX_CHARACTERS] for name in _TEXTS}
        limited.append(replace(incident, runs=runs, **shown))
    return limited


def _moved_messages(run: Run) -> dict[str, int]:
    """Return the number of messages that a run reported as moved, by casefolded entity path."""
    moved = run.report.get("moved")
    if not isinstance(moved, Mapping):
        return {}
    return {str(entity).casefold(): count for entity, count in moved.items() if isinstance(count, int) and count > 0}


def _emptying_runs(events: Iterable[tuple[str, HealthEvent]], moving: Sequence[Run]) -> list[Run]:
    """Return the runs after which the backlog held nothing for the entity.

    A successful run started by the backlog watcher counts even if it moved nothing: its messages were dead-lettered.
    """
    triggered = [
        run for _, event in events if event.kind == "backlog" for run in event.triggered_runs if run.state == "success"
    ]
    return sorted([*moving, *triggered], key=_ended_at)


def _incidents_of(
    events: Iterable[tuple[str, HealthEvent]], healthy: tuple[float, str] | None, emptying: Sequence[Run]
) -> list[IncidentView]:
    """Return the incidents of one entity, oldest first."""
    incidents: list[IncidentView] = []
    for entity, event in events:
        last = incidents[-1] if incidents else None
        if event.kind == "recovery":
            if last is not None and last.until is None:
                incidents[-1] = _with_runs_of(_ended_by_event(last, event), event)
            continue
        if event.kind == "failover":
            is_new = last is None or last.until is not None
        else:
            is_new = last is None or _was_emptied(last, emptying, before=event.at)
            if is_new and last is not None and last.until is None:
                incidents[-1] = _ended_by_drain(last, emptying)
        if is_new:
            incidents.append(_new_incident(event, entity))
        elif event.kind == "failover" and incidents[-1].by == _BACKLOG_WATCHER:
            # The sender reported late: its reason is better, the watcher's start is earlier.
            incidents[-1] = replace(_new_incident(event, entity), at=incidents[-1].at, runs=incidents[-1].runs)
        incidents[-1] = _with_runs_of(incidents[-1], event)
    if incidents and incidents[-1].until is None:
        incidents[-1] = _ended_without_event(incidents[-1], healthy, emptying)
    return incidents


def _ended_without_event(
    incident: IncidentView, healthy: tuple[float, str] | None, emptying: Sequence[Run]
) -> IncidentView:
    since, by = (0.0, "") if healthy is None else healthy
    if since >= incident.at:
        return replace(incident, until=since, ended_by=by)
    return _ended_by_drain(incident, emptying) if incident.by == _BACKLOG_WATCHER else incident


def _was_emptied(last: IncidentView, emptying: Sequence[Run], *, before: float) -> bool:
    """Return whether the last incident's messages were drained, so that waiting messages belong to a new incident."""
    if last.until is None and last.by != _BACKLOG_WATCHER:
        return False
    after = bisect_right(emptying, last.at, key=_ended_at)
    return after < len(emptying) and _ended_at(emptying[after]) <= before


def _ended_by_drain(incident: IncidentView, emptying: Sequence[Run]) -> IncidentView:
    """End an incident of a sender that reports no health when its messages have been drained."""
    after = bisect_right(emptying, incident.at, key=_ended_at)
    if after == len(emptying) or emptying[after].ended_at is None:
        return incident
    run = emptying[after]
    return replace(incident, until=run.ended_at, ended_by=run.dag_id, end_reported=True)


def _with_recoveries(incidents: list[IncidentView], recoveries: Sequence[Run]) -> list[IncidentView]:
    """Assign each recovery to the last incident that started before the recovery ended."""
    for run in recoveries:
        index = _last_before(incidents, _ended_at(run))
        if index is not None:
            incidents[index] = replace(incidents[index], runs=_merge_runs(incidents[index].runs, [run]))
    return incidents


def _with_proofs(incidents: list[IncidentView], drained: Iterable[HealthEvent]) -> list[IncidentView]:
    """Add the runs that a recovery of the entity started to the last incident before it moved messages.

    :param drained: events of such recoveries.
    """
    for event in drained:
        index = _last_before(incidents, event.at)
        if index is not None:
            incidents[index] = _with_runs_of(incidents[index], event)
    return incidents


def _last_before(incidents: Sequence[IncidentView], at: float) -> int | None:
    following = bisect_right(incidents, at, key=lambda incident: incident.at)
    return following - 1 if following else None


def _entities(event: HealthEvent) -> list[str]:
    if event.kind == "drained":
        moved = event.extra.get("moved")
        return list(map(str, moved)) if isinstance(moved, Mapping) else []
    if event.kind != "backlog":
        return [str(event.extra.get("entity", "?"))]
    payload = event.extra.get("payload")
    entities = payload.get("entities") if isinstance(payload, Mapping) else None
    return [entity for entity in entities if isinstance(entity, str)] if isinstance(entities, list) else []


def _start_time(event: HealthEvent) -> float:
    """Return when it happened: a task emits its events when it ends, which may be much later."""
    return min(event.at, _positive_number(event.extra.get("since"), event.at))


def _new_incident(event: HealthEvent, entity: str) -> IncidentView:
    extra = {"reason": _BACKLOG_REASON, "by": _BACKLOG_WATCHER} if event.kind == "backlog" else event.extra
    return IncidentView(
        entity=entity, at=_start_time(event), reason=str(extra.get("reason", "")), by=str(extra.get("by", ""))
    )


def _ended_by_event(incident: IncidentView, event: HealthEvent) -> IncidentView:
    ended_at = _positive_number(event.extra.get("since"), event.at)
    return replace(incident, until=max(ended_at, incident.at), ended_by=str(event.extra.get("by", "")))


def _with_runs_of(incident: IncidentView, event: HealthEvent) -> IncidentView:
    runs = [run for run in (event.source_run, *event.triggered_runs) if run is not None]
    return replace(incident, runs=_merge_runs(incident.runs, runs))


def _merge_runs(views: Sequence[RunView], runs: Iterable[Run]) -> Sequence[RunView]:
    merged = {(view.dag_id, view.run_id): view for view in views}
    for run in runs:
        if run.report or (run.dag_id, run.run_id) not in merged:
            merged[run.dag_id, run.run_id] = build_run_view(run)
    return list(merged.values())[-_MAX_RUNS:]


def _ended_at(run: Run) -> float:
    return float("inf") if run.ended_at is None else run.ended_at


def _positive_number(value: Any, default: float) -> float:
    return float(value) if isinstance(value, int | float) and 0 < value < _NEVER else default
