"""Failovers, filled backlogs and recoveries of a month, matched to incidents. Pure.

A sender in Airflow tells of its failover itself. One that has no door to Airflow, such as a Spark job, is found by what
it leaves: the watcher of the backlog names the entities whose messages wait there. Both are the beginning of an
incident, and of one incident when both tell of the same entity.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from servicebus_pair.ui.history import HealthEvent
from servicebus_pair.ui.runs import Run
from servicebus_pair.ui.snapshot import IncidentView, RunView

__all__ = ["incidents_of", "moved_by", "run_view"]

_MOST: Final = 50
_SHOWN: Final = ("moved", "dead_lettered", "lost", "seconds", "duplicates_possible")
_WATCHER: Final = "the watcher of the backlog"
_WAITING: Final = "its messages waited in the backlog"


def incidents_of(
    events: Sequence[HealthEvent], healthy: Mapping[str, tuple[float, str]], recoveries: Sequence[Run] = ()
) -> list[IncidentView]:
    """Return the incidents, the newest first.

    Each failover of an entity is one, until its next recovery. Several tasks may announce the same failover: those
    of an entity that are not yet recovered from are one incident, which has the runs of all of them, and of every
    recovery that moved its messages.

    :param events: in any order.
    :param healthy: entities that are healthy now, by folded path: since when, and by whom. Their tasks may be about to
        announce it.
    :param recoveries: runs that have reported what they moved.
    """
    told: dict[str, list[tuple[str, HealthEvent]]] = {}
    for event in sorted(events, key=_when):
        for entity in _entities(event):
            told.setdefault(entity.casefold(), []).append((entity, event))
    incidents: list[IncidentView] = []
    for entity, each in told.items():
        moving = sorted((run for run in recoveries if entity in moved_by(run)), key=_ended)
        incidents += _with_recoveries(_of_entity(each, healthy.get(entity), _emptying(each, moving)), moving)
    return sorted(incidents, key=lambda each: each.at, reverse=True)[:_MOST]


def run_view(run: Run) -> RunView:
    """Return what is shown of a run."""
    return RunView(
        dag_id=run.dag_id,
        run_id=run.run_id,
        state=run.state,
        report=isinstance(run.report.get("report"), str),
        result={name: run.report[name] for name in _SHOWN if run.report.get(name) is not None},
    )


def moved_by(run: Run) -> dict[str, int]:
    """Return how many messages a run has moved, by folded path of their entity, as far as it says so."""
    moved = run.report.get("moved")
    if not isinstance(moved, Mapping):
        return {}
    return {str(entity).casefold(): count for entity, count in moved.items() if isinstance(count, int) and count > 0}


def _emptying(told: Iterable[tuple[str, HealthEvent]], moving: Sequence[Run]) -> list[Run]:
    """The runs after which nothing of this entity was left: its messages may have become dead letters."""
    started = [run for _, event in told if event.part == "backlog" for run in event.started if run.state == "success"]
    return sorted([*moving, *started], key=_ended)


def _of_entity(
    told: Iterable[tuple[str, HealthEvent]], healthy: tuple[float, str] | None, moving: Sequence[Run]
) -> list[IncidentView]:
    """The incidents of one entity, the oldest first."""
    found: list[IncidentView] = []
    for entity, event in told:
        last = found[-1] if found else None
        if event.part == "recovery":
            if last is not None and last.until is None:
                found[-1] = _with(_over(last, event), event)
            continue
        if event.part == "failover":
            new = last is None or last.until is not None
        else:
            new = last is None or _emptied(last, moving, before=event.at)
            if new and last is not None and last.until is None:
                found[-1] = _brought_home(last, moving)
        if new:
            found.append(_begun(event, entity))
        elif event.part == "failover" and found[-1].by == _WATCHER:
            found[-1] = replace(_begun(event, entity), at=found[-1].at, runs=found[-1].runs)
        found[-1] = _with(found[-1], event)
    if found and found[-1].until is None:
        found[-1] = _as_it_is(found[-1], healthy, moving)
    return found


def _as_it_is(incident: IncidentView, healthy: tuple[float, str] | None, moving: Sequence[Run]) -> IncidentView:
    """The incident, ended if it is over although no event says so."""
    since, by = (0.0, "") if healthy is None else healthy
    if since >= incident.at:
        return replace(incident, until=since, ended_by=by)
    return _brought_home(incident, moving) if incident.by == _WATCHER else incident


def _emptied(last: IncidentView, moving: Sequence[Run], *, before: float) -> bool:
    """Whether what the last incident left was brought home, so that what waits now is another one's."""
    if last.until is None and last.by != _WATCHER:
        return False
    return any(last.at < _ended(run) <= before for run in moving)


def _brought_home(incident: IncidentView, moving: Sequence[Run]) -> IncidentView:
    """Nobody tells of the health of such an entity: its incident is over when its messages are home."""
    run = next((run for run in moving if incident.at < _ended(run) < float("inf")), None)
    return incident if run is None else replace(incident, until=run.ended, ended_by=run.dag_id)


def _with_recoveries(incidents: list[IncidentView], moving: Sequence[Run]) -> list[IncidentView]:
    """Give each recovery to the last incident that had begun when it ended."""
    for run in moving:
        at = max((at for at, each in enumerate(incidents) if each.at <= _ended(run)), default=None)
        if at is not None:
            incidents[at] = replace(incidents[at], runs=_joined(incidents[at].runs, [run]))
    return incidents


def _entities(event: HealthEvent) -> list[str]:
    if event.part != "backlog":
        return [str(event.extra.get("entity", "?"))]
    payload = event.extra.get("payload")
    named = payload.get("entities") if isinstance(payload, Mapping) else None
    return [entity for entity in named if isinstance(entity, str)] if isinstance(named, list) else []


def _when(event: HealthEvent) -> float:
    """When it happened, which is earlier than when a task that ended told of it."""
    return min(event.at, _number(event.extra.get("since"), event.at))


def _begun(event: HealthEvent, entity: str) -> IncidentView:
    told = {"reason": _WAITING, "by": _WATCHER} if event.part == "backlog" else event.extra
    return IncidentView(entity=entity, at=_when(event), reason=str(told.get("reason", "")), by=str(told.get("by", "")))


def _over(incident: IncidentView, event: HealthEvent) -> IncidentView:
    ended = _number(event.extra.get("since"), event.at)
    return replace(incident, until=max(ended, incident.at), ended_by=str(event.extra.get("by", "")))


def _with(incident: IncidentView, event: HealthEvent) -> IncidentView:
    more = [run for run in (event.source, *event.started) if run is not None]
    return replace(incident, runs=_joined(incident.runs, more))


def _joined(runs: Sequence[RunView], more: Iterable[Run]) -> Sequence[RunView]:
    views = {(run.dag_id, run.run_id): run for run in runs}
    for run in more:
        if run.report or (run.dag_id, run.run_id) not in views:
            views[run.dag_id, run.run_id] = run_view(run)
    return list(views.values())


def _ended(run: Run) -> float:
    return float("inf") if run.ended is None else run.ended


def _number(value: Any, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) and value > 0 else otherwise
