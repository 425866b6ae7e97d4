"""Failovers and recoveries of a month, matched to incidents. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from servicebus_pair.ui.history import HealthEvent, Run
from servicebus_pair.ui.snapshot import IncidentView, RunView

__all__ = ["incidents_of", "run_view"]

_MOST: Final = 50
_SHOWN: Final = ("moved", "dead_lettered", "lost", "seconds", "duplicates_possible")


def incidents_of(events: Sequence[HealthEvent], healthy: Mapping[str, tuple[float, str]]) -> list[IncidentView]:
    """Return the incidents, the newest first.

    Each failover of an entity is one, until its next recovery. Several tasks may announce the same failover: those
    of an entity that are not yet recovered from are one incident, which has the runs of all of them.

    :param events: in any order.
    :param healthy: entities that are healthy now, by folded path: since when, and by whom. Their tasks may be about to
        announce it.
    """
    open_: dict[str, IncidentView] = {}
    done: list[IncidentView] = []
    for event in sorted(events, key=_when):
        entity = str(event.extra.get("entity", "?"))
        incident = open_.get(entity.casefold())
        if event.part == "failover":
            began = _begun(event, entity) if incident is None else incident
            open_[entity.casefold()] = replace(began, runs=_with(began.runs, event))
        elif incident is not None:
            del open_[entity.casefold()]
            ended = _number(event.extra.get("since"), event.at)
            done.append(
                replace(
                    incident,
                    until=max(ended, incident.at),
                    ended_by=str(event.extra.get("by", "")),
                    runs=_with(incident.runs, event),
                )
            )
    for entity, incident in open_.items():
        since, by = healthy.get(entity, (0.0, ""))
        done.append(replace(incident, until=since, ended_by=by) if since >= incident.at else incident)
    return sorted(done, key=lambda each: each.at, reverse=True)[:_MOST]


def run_view(run: Run) -> RunView:
    """Return what is shown of a run."""
    return RunView(
        dag_id=run.dag_id,
        run_id=run.run_id,
        state=run.state,
        report=isinstance(run.report.get("report"), str),
        result={name: run.report[name] for name in _SHOWN if run.report.get(name) is not None},
    )


def _when(event: HealthEvent) -> float:
    """When it happened, which is earlier than when a task that ended told of it."""
    return min(event.at, _number(event.extra.get("since"), event.at))


def _begun(event: HealthEvent, entity: str) -> IncidentView:
    return IncidentView(
        entity=entity,
        at=_when(event),
        reason=str(event.extra.get("reason", "")),
        by=str(event.extra.get("by", "")),
    )


def _with(runs: Sequence[RunView], event: HealthEvent) -> Sequence[RunView]:
    known = {(run.dag_id, run.run_id) for run in runs}
    more = [run for run in (event.source, *event.started) if run is not None]
    return [*runs, *(run_view(run) for run in more if (run.dag_id, run.run_id) not in known)]


def _number(value: Any, otherwise: float) -> float:
    return float(value) if isinstance(value, int | float) and value > 0 else otherwise
