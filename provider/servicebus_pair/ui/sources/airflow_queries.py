"""Read-only queries for what Airflow's metadata database holds of the pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from servicebus_pair.airflow_runtime.airflow_version import has
from servicebus_pair.airflow_runtime.observers.task_activity import ACTIVITY_KEY_PREFIX
from servicebus_pair.assets import ASSET_NAME_PREFIX, conn_id_of
from servicebus_pair.ui.sources.event_queries import (
    ActionRecord,
    HealthEvent,
    read_action_log,
    read_cost_reports,
    read_events,
)
from servicebus_pair.ui.sources.run_queries import SYPHON_OPERATOR, Run, read_recoveries, same_task_instance
from servicebus_pair.ui.sources.stored_state import read_states
from servicebus_pair.ui.sources.task_values import MAX_CHARACTERS, are_counters, read_json, total_characters

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

# States of a task instance that has not finished.
ACTIVE_STATES: Final = ("queued", "scheduled", "running", "deferred", "up_for_retry", "restarting")
_DAY: Final = timedelta(days=1)
_INCIDENT_DAYS: Final = 30
_COST_REPORT_DAYS: Final = 60
_MAX_TASKS: Final = 5000
# Of the counters of a pair's tasks.
_MAX_COUNTER_CHARACTERS: Final = 2**23


@dataclass(frozen=True, slots=True)
class TaskActivity:
    """A task instance that recently worked on a pair.

    :param drains: it drains the backlog.
    :param counters: what ``airflow_runtime.observers.task_activity`` stored; empty before its first write.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    state: str
    drains: bool
    counters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PairDag:
    """A DAG with a task on a pair."""

    dag_id: str
    paused: bool
    has_import_errors: bool


@dataclass(frozen=True, slots=True)
class Records:
    """Records of all pairs, each mapping by connection id.

    :param states: asset state of the pair, by key.
    :param asset_ids: id of the pair's asset, which exists only if a DAG uses the pair.
    :param recoveries: runs that reported moved messages.
    :param cost_reports: time of the last result of a cost task, the result, and the DAG.
    """

    states: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    asset_ids: Mapping[str, int] = field(default_factory=dict)
    activities: Mapping[str, Sequence[TaskActivity]] = field(default_factory=dict)
    events: Mapping[str, Sequence[HealthEvent]] = field(default_factory=dict)
    recoveries: Mapping[str, Sequence[Run]] = field(default_factory=dict)
    action_log: Mapping[str, Sequence[ActionRecord]] = field(default_factory=dict)
    dags: Mapping[str, Sequence[PairDag]] = field(default_factory=dict)
    cost_reports: Mapping[str, tuple[float, Mapping[str, Any], str]] = field(default_factory=dict)


def read_records(now: datetime) -> Records:
    """Read task activity of one day, events, recoveries and actions of 30 days, and cost reports of 60 days.

    :param now: with a time zone.
    """
    from servicebus_pair.airflow_runtime.airflow_version import create_session

    month_ago = now - _INCIDENT_DAYS * _DAY
    with create_session() as session:
        asset_ids = _read_asset_ids(session)
        dags = _read_dags(session, asset_ids)
        conn_ids = {dag.dag_id: conn_id for conn_id, pair_dags in dags.items() for dag in pair_dags}
        return Records(
            states=read_states(session),
            asset_ids=asset_ids,
            activities=_read_activities(session, conn_ids, since=now - _DAY),
            events=read_events(session, since=month_ago),
            recoveries=read_recoveries(session, conn_ids, since=month_ago),
            action_log=read_action_log(session, asset_ids, since=month_ago),
            dags=dags,
            cost_reports=read_cost_reports(session, conn_ids, since=now - _COST_REPORT_DAYS * _DAY),
        )


def _read_asset_ids(session: Session) -> dict[str, int]:
    from sqlalchemy import select

    from servicebus_pair.airflow_runtime.airflow_version import AssetModel

    query = select(AssetModel.name, AssetModel.id).where(AssetModel.name.startswith(ASSET_NAME_PREFIX, autoescape=True))
    return {conn_id: asset_id for name, asset_id in session.execute(query) if (conn_id := conn_id_of(name)) is not None}


def _read_dags(session: Session, asset_ids: Mapping[str, int]) -> dict[str, list[PairDag]]:
    """Return the DAGs of each pair: those with a task that has the pair's asset among its inlets."""
    from sqlalchemy import select

    from servicebus_pair.airflow_runtime.airflow_version import DagModel, TaskInletAssetReference

    conn_ids = {asset_id: conn_id for conn_id, asset_id in asset_ids.items()}
    query = (
        select(TaskInletAssetReference.asset_id, DagModel.dag_id, DagModel.is_paused, DagModel.has_import_errors)
        .join(DagModel, DagModel.dag_id == TaskInletAssetReference.dag_id)
        .where(TaskInletAssetReference.asset_id.in_(conn_ids), ~DagModel.is_stale)
        .distinct()
        .order_by(DagModel.dag_id)
    )
    dags: dict[str, list[PairDag]] = {}
    for asset_id, dag_id, paused, broken in session.execute(query):
        dags.setdefault(conn_ids[asset_id], []).append(PairDag(dag_id, bool(paused), bool(broken)))
    return dags


def _read_activities(
    session: Session, conn_ids: Mapping[str, str], *, since: datetime
) -> dict[str, list[TaskActivity]]:
    found: dict[str, list[TaskActivity]] = {}
    seen: set[tuple[Any, ...]] = set()
    for row in _stored_activities(session, since) if has("task_state") else ():
        counters = read_json(row.value)
        if are_counters(counters):
            seen.add(tuple(row)[:4])
            drains = row.operator == SYPHON_OPERATOR or counters.get("syphoned", 0) > 0
            task = TaskActivity(row.dag_id, row.run_id, row.task_id, row.map_index, str(row.state), drains, counters)
            found.setdefault(row.key.removeprefix(ACTIVITY_KEY_PREFIX), []).append(task)
    _add_waiting(session, conn_ids, found, seen)
    return found


def _stored_activities(session: Session, since: datetime) -> Iterable[Any]:
    """Return the newest of each pair first, however many tasks work on others, and those of its own DAGs only."""
    from sqlalchemy import func, literal, select

    from servicebus_pair.airflow_runtime.airflow_version import AssetModel
    from servicebus_pair.airflow_runtime.airflow_version import TaskInletAssetReference as Inlet
    from servicebus_pair.airflow_runtime.airflow_version import TaskInstance as Task
    from servicebus_pair.airflow_runtime.airflow_version import TaskStateStoreModel as Stored

    newest = Stored.updated_at.desc()
    nth = func.row_number().over(partition_by=Stored.key, order_by=newest)
    total = total_characters(Stored.value, of_each=Stored.key, newest=newest)
    # Whoever writes the state of a task names any pair: it counts for those that its DAG has among its inlets.
    asset_name = literal(ASSET_NAME_PREFIX) + func.substr(Stored.key, len(ACTIVITY_KEY_PREFIX) + 1)
    uses_pair = select(Inlet.dag_id).join(AssetModel, AssetModel.id == Inlet.asset_id)
    uses_pair = uses_pair.where(Inlet.dag_id == Stored.dag_id, AssetModel.name == asset_name)
    found = (
        select(Task.dag_id, Task.run_id, Task.task_id, Task.map_index, Task.state, Task.operator)
        .add_columns(Stored.key, Stored.value, Stored.updated_at, nth.label("nth"), total.label("total"))
        .join(Stored, same_task_instance(Stored))
        .where(Stored.key.startswith(ACTIVITY_KEY_PREFIX, autoescape=True), Stored.updated_at >= since)
        .where(func.length(Stored.value) <= MAX_CHARACTERS, uses_pair.exists())
        .subquery()
    )
    query = select(found).where(found.c.total <= _MAX_COUNTER_CHARACTERS)
    return session.execute(query.order_by(found.c.nth, found.c.updated_at.desc()).limit(_MAX_TASKS))


def _add_waiting(
    session: Session,
    conn_ids: Mapping[str, str],
    found: dict[str, list[TaskActivity]],
    seen: AbstractSet[tuple[Any, ...]],
) -> None:
    """Add the syphon tasks that have stored nothing yet: queued, or waiting in the triggerer for the primary."""
    from sqlalchemy import func, select

    from servicebus_pair.airflow_runtime.airflow_version import TaskInstance as Task

    nth = func.row_number().over(partition_by=Task.dag_id, order_by=(Task.run_id, Task.task_id, Task.map_index))
    waiting = (
        select(Task.dag_id, Task.run_id, Task.task_id, Task.map_index, Task.state)
        .where(Task.operator == SYPHON_OPERATOR, Task.state.in_(ACTIVE_STATES))
        .order_by(nth)
        .limit(_MAX_TASKS)
    )
    for row in session.execute(waiting):
        conn_id = conn_ids.get(row.dag_id)
        if conn_id is not None and tuple(row)[:4] not in seen:
            task = TaskActivity(
                row.dag_id, row.run_id, row.task_id, row.map_index, str(row.state), drains=True, counters={}
            )
            found.setdefault(conn_id, []).append(task)
