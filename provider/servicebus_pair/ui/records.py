"""What Airflow's database holds of the pairs: state, notes of tasks, events, runs and deeds. Reads only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from servicebus_pair.hooks.assets import ASSET_NAME_PREFIX, conn_id_of
from servicebus_pair.hooks.notes import NOTES_KEY_PREFIX
from servicebus_pair.ui.history import Deed, HealthEvent, read_costs, read_deeds, read_events
from servicebus_pair.ui.runs import Run, read_json, read_recoveries

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

__all__ = ["ActionDag", "Note", "Records", "read_records"]

_DAY: Final = timedelta(days=1)
_INCIDENT_DAYS: Final = 30
_MOST_NOTES: Final = 5000
_SYPHON: Final = "ServiceBusPairSyphonOperator"
_ACTIVE: Final = ("queued", "scheduled", "running", "deferred", "up_for_retry", "restarting")


@dataclass(frozen=True, slots=True)
class Note:
    """A task that worked on a pair lately: its state, and what it noted (``hooks.notes``).

    :param drains: it is a syphon.
    :param notes: empty while it has noted nothing.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    state: str
    drains: bool
    notes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ActionDag:
    """A DAG with a task on a pair."""

    dag_id: str
    paused: bool
    broken: bool


@dataclass(frozen=True, slots=True)
class Records:
    """All of it, each by connection id.

    :param states: values of the state of the pair's asset, by key.
    :param asset_ids: of the pair's asset: only a pair that a DAG uses has one.
    :param recoveries: runs that reported what they moved.
    :param costs: when the cost DAG last reported, and what.
    """

    states: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    asset_ids: Mapping[str, int] = field(default_factory=dict)
    notes: Mapping[str, Sequence[Note]] = field(default_factory=dict)
    events: Mapping[str, Sequence[HealthEvent]] = field(default_factory=dict)
    recoveries: Mapping[str, Sequence[Run]] = field(default_factory=dict)
    deeds: Mapping[str, Sequence[Deed]] = field(default_factory=dict)
    dags: Mapping[str, Sequence[ActionDag]] = field(default_factory=dict)
    costs: Mapping[str, tuple[float, Mapping[str, Any]]] = field(default_factory=dict)


def read_records(now: datetime) -> Records:
    """Read what the database holds of all pairs.

    :param now: with a time zone; what is older than a day, or 30 days for incidents and deeds, is left out.
    """
    from airflow.utils.session import create_session

    with create_session() as session:
        asset_ids = _assets(session)
        dags = _dags(session, asset_ids)
        of_dag = {dag.dag_id: conn_id for conn_id, each in dags.items() for dag in each}
        return Records(
            states=_states(session),
            asset_ids=asset_ids,
            notes=_notes(session, of_dag, since=now - _DAY),
            events=read_events(session, since=now - _INCIDENT_DAYS * _DAY),
            recoveries=read_recoveries(session, of_dag, since=now - _INCIDENT_DAYS * _DAY),
            deeds=read_deeds(session, since=now - _INCIDENT_DAYS * _DAY),
            dags=dags,
            costs=read_costs(session, of_dag, since=now - 2 * _INCIDENT_DAYS * _DAY),
        )


def _assets(session: Session) -> dict[str, int]:
    from airflow.models.asset import AssetModel
    from sqlalchemy import select

    ours = select(AssetModel.name, AssetModel.id).where(AssetModel.name.startswith(ASSET_NAME_PREFIX, autoescape=True))
    return {conn_id: asset_id for name, asset_id in session.execute(ours) if (conn_id := conn_id_of(name)) is not None}


def _states(session: Session) -> dict[str, dict[str, Any]]:
    from airflow.models.asset import AssetModel
    from airflow.models.asset_state_store import AssetStateStoreModel
    from sqlalchemy import select

    rows = (
        select(AssetModel.name, AssetStateStoreModel.key, AssetStateStoreModel.value)
        .join(AssetStateStoreModel, AssetStateStoreModel.asset_id == AssetModel.id)
        .where(AssetModel.name.startswith(ASSET_NAME_PREFIX, autoescape=True))
    )
    states: dict[str, dict[str, Any]] = {}
    for name, key, value in session.execute(rows):
        conn_id = conn_id_of(name)
        if conn_id is not None:
            states.setdefault(conn_id, {})[key] = read_json(value)
    return states


def _dags(session: Session, asset_ids: Mapping[str, int]) -> dict[str, list[ActionDag]]:
    """The DAGs of each pair: those with a task that has the pair's asset among its inlets."""
    from airflow.models.asset import TaskInletAssetReference
    from airflow.models.dag import DagModel
    from sqlalchemy import select

    conn_ids = {asset_id: conn_id for conn_id, asset_id in asset_ids.items()}
    rows = (
        select(TaskInletAssetReference.asset_id, DagModel.dag_id, DagModel.is_paused, DagModel.has_import_errors)
        .join(DagModel, DagModel.dag_id == TaskInletAssetReference.dag_id)
        .where(TaskInletAssetReference.asset_id.in_(conn_ids), ~DagModel.is_stale)
        .distinct()
        .order_by(DagModel.dag_id)
    )
    found: dict[str, list[ActionDag]] = {}
    for asset_id, dag_id, paused, broken in session.execute(rows):
        found.setdefault(conn_ids[asset_id], []).append(ActionDag(dag_id, bool(paused), bool(broken)))
    return found


def _notes(session: Session, conn_ids: Mapping[str, str], *, since: datetime) -> dict[str, list[Note]]:
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.models.taskinstance import TaskInstance
    from sqlalchemy import and_, select

    kept, task = TaskStateStoreModel, TaskInstance
    same = and_(*(getattr(task, name) == getattr(kept, name) for name in ("dag_id", "run_id", "task_id", "map_index")))
    rows = (
        select(task.dag_id, task.run_id, task.task_id, task.map_index, task.state, task.operator, kept.key, kept.value)
        .join(kept, same)
        .where(kept.key.startswith(NOTES_KEY_PREFIX, autoescape=True), kept.updated_at >= since)
        .order_by(kept.updated_at.desc())
        .limit(_MOST_NOTES)
    )
    found: dict[str, list[Note]] = {}
    seen: set[tuple[Any, ...]] = set()
    for row in session.execute(rows):
        notes = read_json(row.value)
        if isinstance(notes, dict) and notes.get("v") == 1:
            seen.add(tuple(row)[:4])
            drains = row.operator == _SYPHON or notes.get("syphoned", 0) > 0
            note = Note(row.dag_id, row.run_id, row.task_id, row.map_index, str(row.state), drains, notes)
            found.setdefault(row.key.removeprefix(NOTES_KEY_PREFIX), []).append(note)
    waiting = (
        select(task.dag_id, task.run_id, task.task_id, task.map_index, task.state)
        .where(task.operator == _SYPHON, task.state.in_(_ACTIVE))
        .limit(_MOST_NOTES)
    )
    for dag_id, run_id, task_id, map_index, state in session.execute(waiting):
        conn_id = conn_ids.get(dag_id)
        if conn_id is not None and (dag_id, run_id, task_id, map_index) not in seen:
            note = Note(dag_id, run_id, task_id, map_index, str(state), drains=True, notes={})
            found.setdefault(conn_id, []).append(note)
    return found
