"""Read-only queries for asset events, actions taken on the page, and cost reports."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from servicebus_pair.assets import ASSET_NAME_PREFIX, conn_id_of
from servicebus_pair.ui.sources.run_queries import Run, read_results, read_runs, to_timestamp
from servicebus_pair.ui.sources.task_values import cost_report, event_extra, read_json, stored_text

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from servicebus_pair.airflow_runtime.airflow_version import AssetEvent

AUDIT_LOG_EVENT: Final = "servicebus_pair"
_EVENT_KINDS: Final = ("failover", "recovery", "backlog", "drained")
_MAX_EVENTS: Final = 1000
_MAX_EXTRA_CHARACTERS: Final = 2**16
_MAX_RUNS_OF_EVENT: Final = 50
_MAX_ACTIONS: Final = 200
_COST_OPERATOR: Final = "ServiceBusPairCostOperator"


@dataclass(frozen=True, slots=True)
class HealthEvent:
    """An event of one of the pair's assets.

    :param kind: ``failover``, ``recovery``, ``backlog`` or ``drained``.
    :param source_run: the run that emitted it.
    :param triggered_runs: runs that the event triggered.
    """

    kind: str
    at: float
    extra: Mapping[str, Any]
    source_run: Run | None
    triggered_runs: tuple[Run, ...]


@dataclass(frozen=True, slots=True)
class ActionRecord:
    """An action that a user took on the page; ``extra`` is that of the audit log."""

    user: str
    at: float
    extra: Mapping[str, Any]
    run: Run | None


def read_events(session: Session, *, since: datetime) -> dict[str, list[HealthEvent]]:
    """Return failover, recovery, backlog and drained events by connection id, newest first.

    The newest of each asset come first, however many events the tasks of other pairs emit; large ones are left out.
    """
    from sqlalchemy import func, or_, select
    from sqlalchemy.orm import defer, selectinload

    from servicebus_pair.airflow_runtime.airflow_version import AssetEvent, AssetModel, DagRun

    nth = func.row_number().over(partition_by=AssetEvent.asset_id, order_by=AssetEvent.timestamp.desc())
    extra = stored_text(AssetEvent.extra)
    query = (
        select(AssetModel.name, AssetEvent, extra)
        .join(AssetModel, AssetModel.id == AssetEvent.asset_id)
        .where(AssetModel.name.startswith(ASSET_NAME_PREFIX, autoescape=True), AssetEvent.timestamp >= since)
        .where(or_(*(AssetModel.name.endswith(f".{kind}") for kind in _EVENT_KINDS)))
        .where(func.length(extra) <= _MAX_EXTRA_CHARACTERS)
        .options(
            defer(AssetEvent.extra), selectinload(AssetEvent.created_dagruns).load_only(DagRun.dag_id, DagRun.run_id)
        )
        .order_by(nth, AssetEvent.timestamp.desc())
        .limit(_MAX_EVENTS)
    )
    found = [(*row, _triggered_keys(row[1])) for row in session.execute(query)]
    runs = read_runs(session, (key for _, event, _, keys in found for key in (_source_key(event), *keys)))
    events: dict[str, list[HealthEvent]] = {}
    for name, event, text, keys in sorted(found, key=lambda row: row[1].timestamp, reverse=True):
        pair, _, kind = name.rpartition(".")
        conn_id = conn_id_of(pair)
        # Some databases compare names without regard to case.
        if conn_id is None or kind not in _EVENT_KINDS:
            continue
        events.setdefault(conn_id, []).append(
            HealthEvent(
                kind=kind,
                at=event.timestamp.timestamp(),
                extra=event_extra(read_json(text)),
                source_run=runs.get(_source_key(event)),
                triggered_runs=tuple(runs[key] for key in keys if key in runs),
            )
        )
    return events


def _triggered_keys(event: AssetEvent) -> list[tuple[str, str]]:
    return sorted((run.dag_id, run.run_id) for run in event.created_dagruns)[:_MAX_RUNS_OF_EVENT]


def _source_key(event: AssetEvent) -> tuple[str, str]:
    return str(event.source_dag_id), str(event.source_run_id)


def read_action_log(session: Session, conn_ids: Iterable[str], *, since: datetime) -> dict[str, list[ActionRecord]]:
    """Return the page's actions in Airflow's audit log by connection id, newest first.

    :param conn_ids: the newest of each come first, however many actions there are on other pairs.
    """
    from sqlalchemy import case, func, literal, select

    from servicebus_pair.airflow_runtime.airflow_version import Log

    # As the page writes it: the connection id first.
    begins = {conn_id: json.dumps({"conn_id": conn_id})[:-1] for conn_id in conn_ids}
    pairs = [(Log.extra.startswith(text, autoescape=True), conn_id) for conn_id, text in begins.items()]
    pair = case(*pairs, else_="") if pairs else literal("")
    nth = func.row_number().over(partition_by=pair, order_by=Log.dttm.desc())
    query = (
        select(Log.owner, Log.dttm, Log.dag_id, Log.run_id, Log.extra)
        .where(Log.event == AUDIT_LOG_EVENT, Log.dttm >= since)
        .order_by(nth, Log.dttm.desc())
        .limit(_MAX_ACTIONS)
    )
    rows = sorted(session.execute(query), key=lambda row: row.dttm, reverse=True)
    runs = read_runs(session, {(str(row.dag_id), row.run_id) for row in rows if row.run_id is not None})
    records: dict[str, list[ActionRecord]] = {}
    for owner, at, dag_id, run_id, text in rows:
        extra = read_json(text)
        if at is not None and isinstance(extra, dict) and isinstance(extra.get("conn_id"), str):
            key = str(dag_id), str(run_id)
            run = None if run_id is None else runs.get(key, Run(*key, "deleted"))
            records.setdefault(extra["conn_id"], []).append(ActionRecord(str(owner), at.timestamp(), extra, run))
    return records


def read_cost_reports(
    session: Session, conn_ids: Mapping[str, str], *, since: datetime
) -> dict[str, tuple[float, Mapping[str, Any], str]]:
    """Return the time of the last result of a cost task, the result and its DAG, by connection id.

    :param conn_ids: connection id of each DAG, by DAG id.
    """
    from servicebus_pair.airflow_runtime.airflow_version import TaskInstance, XComModel

    is_report = TaskInstance.operator == _COST_OPERATOR
    reports: dict[str, tuple[float, Mapping[str, Any], str]] = {}
    for dag_id, _, at, report in read_results(session, is_report, XComModel.timestamp >= since, dag_ids=conn_ids):
        reports.setdefault(conn_ids[dag_id], (to_timestamp(at) or 0.0, cost_report(report), dag_id))
    return reports
