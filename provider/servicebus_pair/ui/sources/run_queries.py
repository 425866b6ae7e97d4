"""Read-only queries for DAG runs and what they moved out of the backlog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from servicebus_pair.ui.sources.task_values import (
    MAX_CHARACTERS,
    numbers_of,
    read_json,
    stored_text,
    total_characters,
)

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement
    from sqlalchemy.orm import Session

SYPHON_OPERATOR: Final = "ServiceBusPairSyphonOperator"
_MAX_RESULTS: Final = 1000
# Of the results of a DAG.
_MAX_RESULT_CHARACTERS: Final = 2**22
_MAX_RUNS: Final = 5000
# A database takes a limited number of parameters.
_RUNS_AT_ONCE: Final = 500
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

    :param conn_ids: connection id of each DAG, by DAG id; the newest of each come first.
    """
    from sqlalchemy import or_

    from servicebus_pair.airflow_runtime.airflow_version import TaskInstance, XComModel

    moving = or_(XComModel.task_id == _REPORT_TASK, TaskInstance.operator == SYPHON_OPERATOR)
    moved: dict[tuple[str, str], Counter[str]] = {}
    for dag_id, run_id, _, result in read_results(session, moving, XComModel.timestamp >= since, dag_ids=conn_ids):
        if isinstance(result.get("moved"), dict):
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


def read_results(
    session: Session, *conditions: ColumnElement[bool], dag_ids: Collection[str]
) -> list[tuple[str, str, datetime, dict[str, Any]]]:
    """Return DAG, run, time and mapping of the task results of these DAGs, newest first.

    Of each DAG they are the newest that have room in 4 MiB, so that those of one crowd out no other; results of over
    1 MiB are left out.
    """
    from sqlalchemy import func, select

    from servicebus_pair.airflow_runtime.airflow_version import TaskInstance, XComModel

    value, newest = stored_text(XComModel.value), XComModel.timestamp.desc()
    total = total_characters(value, of_each=XComModel.dag_id, newest=newest)
    nth = func.row_number().over(partition_by=XComModel.dag_id, order_by=newest)
    found = (
        select(XComModel.dag_id, XComModel.run_id, XComModel.timestamp, value.label("value"))
        .add_columns(total.label("total"), nth.label("nth"))
        .join(TaskInstance, same_task_instance(XComModel))
        .where(XComModel.key == _RETURN_VALUE, XComModel.dag_id.in_(dag_ids), *conditions)
        .where(func.length(value) <= MAX_CHARACTERS)
        .subquery()
    )
    columns = found.c.dag_id, found.c.run_id, found.c.timestamp, found.c.value
    within = select(*columns).where(found.c.total <= _MAX_RESULT_CHARACTERS)
    shown = session.execute(within.order_by(found.c.nth, found.c.timestamp.desc()).limit(_MAX_RESULTS))
    rows = sorted(shown, key=lambda row: row.timestamp, reverse=True)
    # A result may be stored as a text of JSON.
    results = ((*row[:3], read_json(read_json(row.value))) for row in rows)
    return [(dag_id, run_id, at, result) for dag_id, run_id, at, result in results if isinstance(result, dict)]


def read_runs(session: Session, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Run]:
    """Return the runs with these DAG and run ids, of the first 5,000; deleted runs are omitted."""
    from sqlalchemy import select, tuple_

    from servicebus_pair.airflow_runtime.airflow_version import DagRun, XComModel

    runs: dict[tuple[str, str], Run] = {}
    wanted = list(dict.fromkeys(keys))[:_MAX_RUNS]
    for first in range(0, len(wanted), _RUNS_AT_ONCE):
        part = wanted[first : first + _RUNS_AT_ONCE]
        of_part = tuple_(XComModel.dag_id, XComModel.run_id).in_(part)
        results = read_results(
            session, XComModel.task_id == _REPORT_TASK, of_part, dag_ids={dag_id for dag_id, _ in part}
        )
        reports = {
            (dag_id, run_id): numbers_of(result) | {"report": bool(result.get("report"))}
            for dag_id, run_id, _, result in results
        }
        query = select(DagRun.dag_id, DagRun.run_id, DagRun.state, DagRun.start_date, DagRun.end_date).where(
            tuple_(DagRun.dag_id, DagRun.run_id).in_(part)
        )
        for dag_id, run_id, state, started, ended in session.execute(query):
            runs[dag_id, run_id] = Run(
                *(dag_id, run_id, str(state), reports.get((dag_id, run_id), {})),
                started_at=to_timestamp(started),
                ended_at=to_timestamp(ended),
            )
    return runs


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
