"""What of a pair's view a user may see who may not read some of its DAGs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from servicebus_pair.ui.sources.airflow_queries import PairDag
from servicebus_pair.ui.view.action_catalogue import ActionName, build_action_view
from servicebus_pair.ui.views import ActionRecordView, CostView, IncidentView, PairView, RunView


def dag_ids_of(pair: PairView, dags: Sequence[PairDag]) -> frozenset[str]:
    """Return the DAGs that the view names.

    :param dags: those of the pair.
    """
    runs = [run for incident in pair.incidents for run in incident.runs]
    runs += [record.run for record in pair.action_log if record.run is not None]
    reported = [] if pair.cost.reported_by is None else [pair.cost.reported_by]
    drains = [drain.dag_id for drain in pair.syphon.drains]
    # The run that ended a long incident is perhaps not among those that it shows.
    ended = [incident.ended_by for incident in pair.incidents if incident.end_reported]
    return frozenset([*(run.dag_id for run in runs), *(dag.dag_id for dag in dags), *drains, *reported, *ended])


def without_dags(pair: PairView, dags: Sequence[PairDag], hidden: AbstractSet[str]) -> PairView:
    """Return the view without the runs of the hidden DAGs and without their names; totals of the pair remain.

    :param dags: those of the pair.
    """
    shown = [dag for dag in dags if dag.dag_id not in hidden]
    without_runs = change_runs(pair, lambda run: None if run.dag_id in hidden else run)
    records = zip(pair.action_log, without_runs.action_log, strict=True)
    has_state = all(action.problem is None for action in pair.actions if action.name == ActionName.PAUSE_SYPHON)
    return replace(
        without_runs,
        incidents=[replace(each, ended_by="") if each.ended_by in hidden else each for each in without_runs.incidents],
        action_log=[record for before, record in records if (before.run is None) is (record.run is None)],
        syphon=replace(pair.syphon, drains=[each for each in pair.syphon.drains if each.dag_id not in hidden]),
        actions=[build_action_view(name, shown, has_state=has_state) for name in ActionName],
        cost=_without_report(pair.cost) if pair.cost.reported_by in hidden else pair.cost,
    )


def change_runs(pair: PairView, change: Callable[[RunView], RunView | None]) -> PairView:
    """Return the view with each run replaced, or left out for ``None``."""

    def incident(each: IncidentView) -> IncidentView:
        return replace(each, runs=[run for run in map(change, each.runs) if run is not None])

    def record(each: ActionRecordView) -> ActionRecordView:
        return replace(each, run=None if each.run is None else change(each.run))

    return replace(pair, incidents=list(map(incident, pair.incidents)), action_log=list(map(record, pair.action_log)))


def _without_report(cost: CostView) -> CostView:
    return replace(cost, report={}, reported_at=None, reported_by=None)
