"""What happened to the pairs, by Airflow's database: failovers, what people did, what was reported. Reads only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from servicebus_pair.hooks.assets import ASSET_NAME_PREFIX, conn_id_of
from servicebus_pair.ui.runs import Run, read_json, read_runs, seconds

if TYPE_CHECKING:
    from airflow.models.asset import AssetEvent
    from sqlalchemy.orm import Session

__all__ = [
    "DEED_EVENT",
    "Deed",
    "HealthEvent",
    "read_costs",
    "read_deeds",
    "read_events",
]

DEED_EVENT: Final = "servicebus_pair"
_MOST_EVENTS: Final = 1000
_PARTS: Final = ("failover", "recovery", "backlog")
_MOST_DEEDS: Final = 200
_COST: Final = "ServiceBusPairCostOperator"


@dataclass(frozen=True, slots=True)
class HealthEvent:
    """An event of the failover, the recovery or the backlog asset of a pair.

    :param part: which of them.
    :param started: the runs that it started.
    """

    part: str
    at: float
    extra: Mapping[str, Any]
    source: Run | None
    started: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class Deed:
    """What somebody did on the page."""

    user: str
    at: float
    extra: Mapping[str, Any]
    run: Run | None


def read_events(session: Session, *, since: datetime) -> dict[str, list[HealthEvent]]:
    """The events of failovers, recoveries and filled backlogs of each pair, the newest first."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.models.dagrun import DagRun
    from sqlalchemy import or_, select
    from sqlalchemy.orm import selectinload

    rows = (
        select(AssetModel.name, AssetEvent)
        .join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        .where(AssetModel.name.startswith(ASSET_NAME_PREFIX, autoescape=True), AssetEvent.timestamp >= since)
        .where(or_(*(AssetModel.name.endswith(f".{part}") for part in _PARTS)))
        .options(selectinload(AssetEvent.created_dagruns).load_only(DagRun.dag_id, DagRun.run_id))
        .order_by(AssetEvent.timestamp.desc())
        .limit(_MOST_EVENTS)
    )
    events = [(name, event) for name, event in session.execute(rows)]
    keys = {(run.dag_id, run.run_id) for _, event in events for run in event.created_dagruns}
    runs = read_runs(session, keys | {_source(event) for _, event in events if event.source_dag_id is not None})
    found: dict[str, list[HealthEvent]] = {}
    for name, event in events:
        pair, _, part = name.rpartition(".")
        conn_id = conn_id_of(pair)
        if conn_id is None:
            continue
        started = sorted((run.dag_id, run.run_id) for run in event.created_dagruns)
        found.setdefault(conn_id, []).append(
            HealthEvent(
                part=part,
                at=event.timestamp.timestamp(),
                extra=event.extra or {},
                source=runs.get(_source(event)),
                started=tuple(runs[key] for key in started if key in runs),
            )
        )
    return found


def _source(event: AssetEvent) -> tuple[str, str]:
    return str(event.source_dag_id), str(event.source_run_id)


def read_deeds(session: Session, *, since: datetime) -> dict[str, list[Deed]]:
    """What was done on the page, by Airflow's audit log, the newest first."""
    from airflow.models.log import Log
    from sqlalchemy import select

    rows = list(
        session.execute(
            select(Log.owner, Log.dttm, Log.dag_id, Log.run_id, Log.extra)
            .where(Log.event == DEED_EVENT, Log.dttm >= since)
            .order_by(Log.dttm.desc())
            .limit(_MOST_DEEDS)
        )
    )
    runs = read_runs(session, {(str(row.dag_id), row.run_id) for row in rows if row.run_id is not None})
    found: dict[str, list[Deed]] = {}
    for owner, at, dag_id, run_id, extra in rows:
        told = read_json(extra)
        if at is not None and isinstance(told, dict) and isinstance(told.get("conn_id"), str):
            key = str(dag_id), str(run_id)
            run = None if run_id is None else runs.get(key, Run(*key, "deleted"))
            deed = Deed(str(owner), at.timestamp(), told, run)
            found.setdefault(told["conn_id"], []).append(deed)
    return found


def read_costs(
    session: Session, conn_ids: Mapping[str, str], *, since: datetime
) -> dict[str, tuple[float, Mapping[str, Any]]]:
    """Return when a cost task last reported, and what, by pair.

    :param conn_ids: of the pair of each DAG.
    """
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.xcom import XComModel
    from sqlalchemy import and_, select

    xcom, task = XComModel, TaskInstance
    same = and_(*(getattr(task, name) == getattr(xcom, name) for name in ("dag_id", "run_id", "task_id", "map_index")))
    rows = (
        select(xcom.dag_id, xcom.timestamp, xcom.value)
        .join(task, same)
        .where(xcom.key == "return_value", task.operator == _COST, xcom.timestamp >= since)
        .order_by(xcom.timestamp)
    )
    found: dict[str, tuple[float, Mapping[str, Any]]] = {}
    for dag_id, at, value in session.execute(rows):
        report, conn_id = read_json(value), conn_ids.get(dag_id)
        if conn_id is not None and isinstance(report, dict):
            found[conn_id] = (seconds(at) or 0.0, report)
    return found
