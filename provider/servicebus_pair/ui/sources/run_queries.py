"""Read-only queries for DAG runs and what they moved out of the backlog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from servicebus_pair.ui.sources.task_values import numbers_of, read_json

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement
    from sqlalchemy.orm import Session

SYPHON_OPERATOR: Final = "ServiceBusPairSyphonOperator"
_MAX_RESULTS: Final = 1000
_REPORT_TASK: Final = "report"
_RETURN_VALUE: Final = "return_value"


@dataclass(frozen=True, slots=True)
class Run:
    """A DAG run.

    :param report: the numbers that its task ``report`` returned, and whether it says that there is a report; without
        such a task, ``{"moved": ...}`` of its syphon tasks.
    :param started_at: seconds since the Unix epoch, like ``ended_at``; ``None`` if it has not started or ended.
    """

    dag_id: str
    run_id: str
    state: str
    report: Mapping[str, Any] = field(default_factory=dict)
    started_at: float | None = None
    ended_at: float | None = None


def read_recoveries(session: Session, conn_ids: Mapping[str, str], *, since: datetime) -> dict[str, list[Run]]:
    """Return the runs that reported moved messages, by connection id, newest first.

    :param conn_ids: connection id of each DAG, by DAG id.
    """
    from sqlalchemy import or_, select

    from servicebus_pair.airflow_runtime.airflow_version import TaskInstance, XComModel

    query = (
        select(XComModel.dag_id, XComModel.run_id, XComModel.value)
        .join(TaskInstance, same_task_instance(XComModel))
        .where(XComModel.key == _RETURN_VALUE)
        .where(or_(XComModel.task_id == _REPORT_TASK, TaskInstance.operator == SYPHON_OPERATOR))
        .where(XComModel.timestamp >= since, XComModel.dag_id.in_(conn_ids))
        .order_by(XComModel.timestamp.desc())
        .limit(_MAX_RESULTS)
    )
    moved: dict[tuple[str, str], Counter[str]] = {}
    for dag_id, run_id, value in session.execute(query):
        result = read_json(value)
        if isinstance(result, dict) and isinstance(result.get("moved"), dict):
            moved.setdefault((dag_id, run_id), Counter()).update(numbers_of(result)["moved"])
    runs = read_runs(session, moved)
    recoveries: dict[str, list[Run]] = {}
    for key, counts in moved.items():
        if key in runs:
            run = runs[key]
            if not isinstance(run.report.get("moved"), dict):
                run = replace(run, report={"moved": dict(counts)})
            recoveries.setdefault(conn_ids[key[0]], []).append(run)
    return recoveries


def read_runs(session: Session, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Run]:
    """Return the runs with these DAG and run ids; deleted runs are omitted."""
    from sqlalchemy import select, tuple_

    from servicebus_pair.airflow_runtime.airflow_version import DagRun

    keys = list(keys)
    if not keys:
        return {}
    reports = _read_reports(session, keys)
    query = select(DagRun.dag_id, DagRun.run_id, DagRun.state, DagRun.start_date, DagRun.end_date).where(
        tuple_(DagRun.dag_id, DagRun.run_id).in_(keys)
    )
    return {
        (dag_id, run_id): Run(
            *(dag_id, run_id, str(state), reports.get((dag_id, run_id), {})),
            started_at=to_timestamp(started),
            ended_at=to_timestamp(ended),
        )
        for dag_id, run_id, state, started, ended in session.execute(query)
    }


def _read_reports(session: Session, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Mapping[str, Any]]:
    from sqlalchemy import select, tuple_

    from servicebus_pair.airflow_runtime.airflow_version import XComModel

    query = select(XComModel.dag_id, XComModel.run_id, XComModel.value).where(
        XComModel.key == _RETURN_VALUE,
        XComModel.task_id == _REPORT_TASK,
        tuple_(XComModel.dag_id, XComModel.run_id).in_(keys),
    )
    values = {(dag_id, run_id): read_json(value) for dag_id, run_id, value in session.execute(query)}
    return {
        key: numbers_of(value) | {"report": bool(value.get("report"))}
        for key, value in values.items()
        if isinstance(value, dict)
    }


def same_task_instance(model: Any) -> ColumnElement[bool]:
    """Return the condition that joins a model with task instances by DAG, run, task and map index."""
    from sqlalchemy import and_

    from servicebus_pair.airflow_runtime.airflow_version import TaskInstance

    columns = ("dag_id", "run_id", "task_id", "map_index")
    return and_(*(getattr(TaskInstance, name) == getattr(model, name) for name in columns))


def to_timestamp(at: datetime | None) -> float | None:
    """Return seconds since the Unix epoch; a naive time is UTC, as SQLite returns it."""
    if at is None:
        return None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
