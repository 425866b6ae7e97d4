"""Executes actions requested on the page and writes them to Airflow's audit log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from servicebus_pair.airflow_runtime.syphon_control import SYPHON_CONTROL_KEY, SyphonControl
from servicebus_pair.core.model import get_logger
from servicebus_pair.ui.sources.event_queries import AUDIT_LOG_EVENT
from servicebus_pair.ui.sources.stored_state import StoredState
from servicebus_pair.ui.sources.task_values import read_json
from servicebus_pair.ui.view.action_catalogue import ActionName

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_log = get_logger(__name__)
# One DAG does both and reads the action from its configuration.
_FAILOVER_ACTIONS: Final = (ActionName.FAIL_OVER, ActionName.FAIL_BACK)


class ActionRefusedError(Exception):
    """The action is not possible in the current state; nothing was changed."""


@dataclass(frozen=True, slots=True)
class ActionResult:
    """An executed action; ``dag_id`` and ``run_id`` are set if it triggered a DAG run."""

    action: str
    dag_id: str | None = None
    run_id: str | None = None


def trigger_run(
    action: ActionName, *, conn_id: str, dag_id: str, settings: Mapping[str, Any], user: str, reason: str
) -> ActionResult:
    """Trigger a DAG run on behalf of a user; the reason becomes the note of the run.

    :param settings: the form's fields; each must be a parameter of the DAG.
    :raises ActionRefusedError: the DAG does not exist, or rejects this configuration.
    """
    from servicebus_pair.airflow_runtime.airflow_version import (
        AirflowException,
        DagRunTriggeredByType,
        DBDagBag,
        create_session,
        trigger_dag,
    )

    with create_session() as session:
        dag = DBDagBag().get_latest_version_of_dag(dag_id, session=session)
        if dag is None:
            raise ActionRefusedError(f"the DAG {dag_id} no longer exists: reload the page")
        conf = _run_conf(action, settings, params=set(dag.params), dag_id=dag_id, reason=reason)
        try:
            run = trigger_dag(
                dag_id,
                triggered_by=DagRunTriggeredByType.UI,
                triggering_user_name=user,
                conf=conf,
                note=reason,
                session=session,
            )
        except (AirflowException, ValueError) as error:
            raise ActionRefusedError(f"the DAG {dag_id} was not triggered: {error}") from error
        if run is None:
            raise ActionRefusedError(f"the DAG {dag_id} was not triggered")
        result = ActionResult(action.value, dag_id, run.run_id)
        _write_audit_log(session, result, conn_id=conn_id, user=user, reason=reason, detail=settings)
    return result


def set_syphon_control(
    action: ActionName, *, conn_id: str, asset_id: int, rate: float | None, user: str, reason: str, now: float
) -> ActionResult:
    """Pause, resume or throttle the syphon by writing the control value that running tasks poll.

    :param asset_id: id of the pair's asset.
    :param rate: limit in messages a second for ``throttle_syphon``; ``None`` for no limit.
    :param now: seconds since the Unix epoch.
    """
    from servicebus_pair.airflow_runtime.airflow_version import create_session

    with create_session() as session:
        state = StoredState(session, conn_id=conn_id, asset_id=asset_id)
        current = _parse_control(state.get(SYPHON_CONTROL_KEY))
        if action is ActionName.THROTTLE_SYPHON:
            control = replace(current, rate=rate, rate_by=user, rate_reason=reason)
        else:
            control = replace(current, paused=action is ActionName.PAUSE_SYPHON, by=user, reason=reason, at=now)
        state.set(SYPHON_CONTROL_KEY, json.dumps(control.to_json()))
        result = ActionResult(action.value)
        detail = {"rate": rate} if action is ActionName.THROTTLE_SYPHON else {}
        _write_audit_log(session, result, conn_id=conn_id, user=user, reason=reason, detail=detail)
    return result


def _run_conf(
    action: ActionName, settings: Mapping[str, Any], *, params: set[str], dag_id: str, reason: str
) -> dict[str, Any]:
    conf = dict(settings)
    if action in _FAILOVER_ACTIONS:
        conf |= {"action": action.value}
    unknown = sorted(set(conf) - params)
    if unknown:
        raise ActionRefusedError(
            f"the DAG {dag_id} has no parameter {unknown[0]}: it has {', '.join(sorted(params)) or 'none'}"
        )
    return conf | ({"reason": reason} if "reason" in params else {})


def _parse_control(text: str | None) -> SyphonControl:
    try:
        return SyphonControl.from_json(read_json(text))
    except ValueError:
        return SyphonControl()


def _write_audit_log(
    session: Session, result: ActionResult, *, conn_id: str, user: str, reason: str, detail: Mapping[str, Any]
) -> None:
    from servicebus_pair.airflow_runtime.airflow_version import Log

    extra = {"conn_id": conn_id, "action": result.action, "reason": reason, "detail": dict(detail)}
    session.add(
        Log(
            event=AUDIT_LOG_EVENT,
            owner=user,
            owner_display_name=user,
            extra=json.dumps(extra),
            dag_id=result.dag_id,
            run_id=result.run_id,
        )
    )
    _log.info(
        "conn_id=%s action=%s user=%r dag_id=%s run_id=%r reason=%r",
        *(conn_id, result.action, user, result.dag_id, result.run_id, reason),
    )
