"""Does what somebody asked for on the page, and writes down who, what and why in Airflow's audit log."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from servicebus_pair.hooks.steering import SYPHON_CONTROL_KEY, SyphonControl
from servicebus_pair.ui.actions import ActionName
from servicebus_pair.ui.history import DEED_EVENT

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

__all__ = ["Done", "RefusedActionError", "start_run", "steer"]

_log = logging.getLogger(__name__)
_BY_HAND: Final = (ActionName.FAIL_OVER, ActionName.FAIL_BACK)


class RefusedActionError(Exception):
    """The action cannot be done as things are; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Done:
    """What was done; ``dag_id`` and ``run_id`` when that is a run of a DAG."""

    action: str
    dag_id: str | None = None
    run_id: str | None = None


def start_run(
    action: ActionName, *, conn_id: str, dag_id: str, settings: Mapping[str, Any], user: str, reason: str
) -> Done:
    """Start a run of a DAG for somebody; the reason is its note.

    :param settings: of the form; those that the DAG has no parameter for are refused unless they say nothing.
    :raises RefusedActionError: the DAG is gone, or does not take this configuration.
    """
    from airflow.api.common.trigger_dag import trigger_dag
    from airflow.models.dagbag import DBDagBag
    from airflow.sdk.exceptions import AirflowException
    from airflow.utils.session import create_session
    from airflow.utils.types import DagRunTriggeredByType

    with create_session() as session:
        dag = DBDagBag().get_latest_version_of_dag(dag_id, session=session)
        if dag is None:
            raise RefusedActionError(f"the DAG {dag_id} is gone: reload the page")
        conf = _conf(action, settings, known=set(dag.params), dag_id=dag_id, reason=reason)
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
            raise RefusedActionError(f"the DAG {dag_id} was not started: {error}") from error
        if run is None:
            raise RefusedActionError(f"the DAG {dag_id} was not started")
        done = Done(action.value, dag_id, run.run_id)
        _record(session, done, conn_id=conn_id, user=user, reason=reason, detail=settings)
    return done


def steer(
    action: ActionName, *, conn_id: str, asset_id: int, rate: float | None, user: str, reason: str, now: float
) -> Done:
    """Pause, resume or throttle the syphon of a pair, by the value that its tasks obey.

    :param asset_id: of the pair's asset.
    :param rate: of a throttle, messages a second; ``None`` for no limit.
    :param now: seconds since the Unix epoch.
    """
    from airflow._shared.state import AssetStateStoreWriterKind  # the kinds of writers have no public place (3.3.2)
    from airflow.state import AssetScope
    from airflow.state.metastore import MetastoreBackend
    from airflow.utils.session import create_session

    backend, scope = MetastoreBackend(), AssetScope(asset_id=asset_id)
    with create_session() as session:
        before = _control(backend.get(scope, SYPHON_CONTROL_KEY, session=session))
        if action is ActionName.THROTTLE_SYPHON:
            wanted = replace(before, rate=rate, rate_by=user, rate_reason=reason)
        else:
            wanted = replace(before, paused=action is ActionName.PAUSE_SYPHON, by=user, reason=reason, at=now)
        backend.set_asset_state_store(
            scope,
            SYPHON_CONTROL_KEY,
            json.dumps(wanted.to_json()),
            kind=AssetStateStoreWriterKind.API,
            session=session,
        )
        done = Done(action.value)
        detail = {"rate": rate} if action is ActionName.THROTTLE_SYPHON else {}
        _record(session, done, conn_id=conn_id, user=user, reason=reason, detail=detail)
    return done


def _conf(
    action: ActionName, settings: Mapping[str, Any], *, known: set[str], dag_id: str, reason: str
) -> dict[str, Any]:
    conf = dict(settings)
    if action in _BY_HAND:
        conf |= {"action": action.value}
    foreign = sorted(set(conf) - known)
    if foreign:
        raise RefusedActionError(
            f"the DAG {dag_id} has no parameter {foreign[0]}: it has {', '.join(sorted(known)) or 'none'}"
        )
    return conf | ({"reason": reason} if "reason" in known else {})


def _control(text: str | None) -> SyphonControl:
    try:
        return SyphonControl() if text is None else SyphonControl.from_json(json.loads(text))
    except ValueError:
        return SyphonControl()


def _record(session: Session, done: Done, *, conn_id: str, user: str, reason: str, detail: Mapping[str, Any]) -> None:
    from airflow.models.log import Log

    told = {"conn_id": conn_id, "action": done.action, "reason": reason, "detail": dict(detail)}
    session.add(
        Log(
            event=DEED_EVENT,
            owner=user,
            owner_display_name=user,
            extra=json.dumps(told),
            dag_id=done.dag_id,
            run_id=done.run_id,
        )
    )
    _log.info(
        "conn_id=%s action=%s user=%s dag_id=%s run_id=%s reason=%s",
        *(conn_id, done.action, user, done.dag_id, done.run_id, reason),
    )
