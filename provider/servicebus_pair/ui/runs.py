"""Runs of DAGs that the page tells of: how they went, and what they moved out of the backlog. Reads only."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

__all__ = ["Run", "read_json", "read_recoveries", "read_runs", "seconds"]

_MOST_RESULTS: Final = 1000
_SYPHON: Final = "ServiceBusPairSyphonOperator"
_REPORT_TASK: Final = "report"
_RESULT: Final = "return_value"


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a DAG, and what its task ``report`` returned; without one, what its syphons ``moved``.

    :param began: seconds since the Unix epoch, as ``ended``; ``None`` while it has not.
    """

    dag_id: str
    run_id: str
    state: str
    report: Mapping[str, Any] = field(default_factory=dict)
    began: float | None = None
    ended: float | None = None


def read_recoveries(session: Session, conn_ids: Mapping[str, str], *, since: datetime) -> dict[str, list[Run]]:
    """The runs that have told what they moved, whatever started them, by pair, the newest first.

    :param conn_ids: of the pair of each DAG.
    """
    from airflow.models.taskinstance import TaskInstance
    from airflow.models.xcom import XComModel
    from sqlalchemy import and_, or_, select

    xcom, task = XComModel, TaskInstance
    same = and_(*(getattr(task, name) == getattr(xcom, name) for name in ("dag_id", "run_id", "task_id", "map_index")))
    rows = (
        select(xcom.dag_id, xcom.run_id, xcom.value)
        .join(task, same)
        .where(xcom.key == _RESULT, or_(xcom.task_id == _REPORT_TASK, task.operator == _SYPHON))
        .where(xcom.timestamp >= since, xcom.dag_id.in_(conn_ids))
        .order_by(xcom.timestamp.desc())
        .limit(_MOST_RESULTS)
    )
    moved: dict[tuple[str, str], Counter[str]] = {}
    for dag_id, run_id, value in session.execute(rows):
        result = read_json(value)
        if isinstance(result, dict) and isinstance(result.get("moved"), dict):
            counts = {str(name): count for name, count in result["moved"].items() if isinstance(count, int)}
            moved.setdefault((dag_id, run_id), Counter()).update(counts)
    runs = read_runs(session, moved)
    found: dict[str, list[Run]] = {}
    for key, counts in moved.items():
        if key in runs:
            run = runs[key]
            told = run if isinstance(run.report.get("moved"), dict) else replace(run, report={"moved": dict(counts)})
            found.setdefault(conn_ids[key[0]], []).append(told)
    return found


def read_runs(session: Session, wanted: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Run]:
    """Return the runs of these DAGs and ids; those that are gone are left out."""
    from airflow.models.dagrun import DagRun
    from sqlalchemy import select, tuple_

    keys = list(wanted)
    if not keys:
        return {}
    reports = _reports(session, keys)
    rows = select(DagRun.dag_id, DagRun.run_id, DagRun.state, DagRun.start_date, DagRun.end_date).where(
        tuple_(DagRun.dag_id, DagRun.run_id).in_(keys)
    )
    return {
        (dag_id, run_id): Run(
            *(dag_id, run_id, str(state), reports.get((dag_id, run_id), {})),
            began=seconds(began),
            ended=seconds(ended),
        )
        for dag_id, run_id, state, began, ended in session.execute(rows)
    }


def _reports(session: Session, keys: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Mapping[str, Any]]:
    """What the task ``report`` of these runs returned."""
    from airflow.models.xcom import XComModel
    from sqlalchemy import select, tuple_

    rows = select(XComModel.dag_id, XComModel.run_id, XComModel.value).where(
        XComModel.key == _RESULT,
        XComModel.task_id == _REPORT_TASK,
        tuple_(XComModel.dag_id, XComModel.run_id).in_(keys),
    )
    values = {(dag_id, run_id): read_json(value) for dag_id, run_id, value in session.execute(rows)}
    return {key: value for key, value in values.items() if isinstance(value, dict)}


def read_json(text: Any) -> Any:
    """Return JSON as the database kept it, or ``None`` for what is none: there is nothing to show then."""
    try:
        return json.loads(text) if isinstance(text, str) else text
    except ValueError:
        return None


def seconds(at: datetime | None) -> float | None:
    """Return a moment of the database, in seconds since the Unix epoch."""
    return None if at is None else _aware(at).timestamp()


def _aware(at: datetime) -> datetime:
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)
