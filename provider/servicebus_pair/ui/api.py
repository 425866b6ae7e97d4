"""The routes that the plugin mounts; every one asks Airflow who the user is and what the user may.

==============================================================  =====  ==========================================
route                                                           right  answer
==============================================================  =====  ==========================================
``GET /``, ``GET /static/{name}``                               read   the page
``GET /api/snapshot``                                           read   all pairs (``ui.snapshot``), and who asks
``GET /api/pairs/{conn_id}``                                    read   one of them
``GET /api/pairs/{conn_id}/reports/{dag_id}/{run_id}``          read   the reconcile report of a recovery, HTML
``POST /api/pairs/{conn_id}/actions/{action}``                  write  does it; 202, what was started
==============================================================  =====  ==========================================

To read is to have the right ``GET`` on assets, to write the right ``PUT``, and on the DAG that is started that to
trigger it. Every error is JSON: ``{"detail": ...}``.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import get_user, requires_access_asset, requires_access_dag
from airflow.configuration import AIRFLOW_HOME, conf
from fastapi import Depends, FastAPI, HTTPException, Request, Response, status
from fastapi.concurrency import run_in_threadpool

from servicebus_pair.ui.acting import Done, RefusedActionError, start_run, steer
from servicebus_pair.ui.actions import ActionName, view_of_action
from servicebus_pair.ui.bodies import Body, BodyProblem, read_body
from servicebus_pair.ui.page import PAGE_HEADERS, asset, page, report
from servicebus_pair.ui.watching import Cached, Watch

__all__ = ["build_app"]

_MOST_BYTES: Final = 65_536
_INTERVAL_SECONDS: Final = 5.0
_JSON: Final = "application/json"
_FRESH: Final = {"Cache-Control": "no-store"}
User = Annotated[BaseUser, Depends(get_user)]


def build_app(watch: Watch | None = None) -> FastAPI:
    """Return the application: a mounted one has no authentication but what it asks for itself.

    :param watch: what is known of the pairs; one of its own when not given.
    """
    known = Watch(interval=_interval(), folder=Path(AIRFLOW_HOME, "servicebus_pair")) if watch is None else watch
    app = FastAPI(
        title="Service Bus pairs",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(requires_access_asset("GET"))],
    )
    _add_page(app)
    _add_reads(app, known)
    _add_writes(app, known)

    @app.api_route("/{rest:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
    def nothing(rest: str) -> None:
        """What is not there is not found, and only by those who may look."""
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"there is no {rest!r} here")

    return app


def _interval() -> float:
    """Seconds between two looks: ``[servicebus_pair] page_interval``, 5 when not set, at least 1."""
    return max(1.0, conf.getfloat("servicebus_pair", "page_interval", fallback=_INTERVAL_SECONDS))


def _add_page(app: FastAPI) -> None:
    @app.get("/")
    def show_page() -> Response:
        """The page; it asks for all that it shows by itself."""
        return Response(page(), media_type="text/html", headers=PAGE_HEADERS)

    @app.get("/static/{name}")
    def show_asset(name: str) -> Response:
        """What the page is made of."""
        found = asset(name)
        if found is None:
            raise HTTPException(status.HTTP_404_NOT_FOUND, f"there is no {name!r} here")
        return Response(found.content, media_type=found.media_type, headers=PAGE_HEADERS)


def _add_reads(app: FastAPI, watch: Watch) -> None:
    @app.get("/api/snapshot")
    def snapshot(user: User) -> Response:
        """All that is known of all pairs, at once, from the cache."""
        may_act = get_auth_manager().is_authorized_asset(method="PUT", user=user)
        return _told(watch.ask().snapshot, user=user.get_name(), may_act=may_act)

    @app.get("/api/pairs/{conn_id}")
    def pair(conn_id: str) -> Response:
        """One pair."""
        found = watch.ask().pairs.get(conn_id)
        if found is None:
            raise _no_pair(conn_id)
        return Response(found, media_type=_JSON, headers=_FRESH)

    @app.get("/api/pairs/{conn_id}/reports/{dag_id}/{run_id:path}")
    def show_report(conn_id: str, dag_id: str, run_id: str, request: Request, user: User) -> Response:
        """The reconcile report of one recovery, without anything that could run."""
        known = watch.ask()
        if conn_id not in known.pairs:
            raise _no_pair(conn_id)
        requires_access_dag("GET", DagAccessEntity.XCOM, param_dag_id=dag_id)(request, user)
        events = [run for event in known.records.events.get(conn_id, ()) for run in (*event.started, event.source)]
        runs = [*known.records.recoveries.get(conn_id, ()), *(run for run in events if run is not None)]
        found = next((run for run in runs if (run.dag_id, run.run_id) == (dag_id, run_id)), None)
        content = None if found is None else report(found.report.get("report"))
        if content is None:
            raise HTTPException(status.HTTP_404_NOT_FOUND, f"{run_id!r} of {dag_id!r} has no report that is kept here")
        return Response(content.content, media_type=content.media_type, headers=content.headers)


def _add_writes(app: FastAPI, watch: Watch) -> None:
    @app.post(
        "/api/pairs/{conn_id}/actions/{action}",
        status_code=status.HTTP_202_ACCEPTED,
        dependencies=[Depends(requires_access_asset("PUT"))],
    )
    async def act(conn_id: str, action: str, request: Request, user: User) -> dict[str, Any]:
        """Do something with a pair, on the record."""
        known = await run_in_threadpool(watch.ask)
        if conn_id not in known.pairs:
            raise _no_pair(conn_id)
        if action not in tuple(ActionName):
            raise HTTPException(
                status.HTTP_404_NOT_FOUND, f"there is no action {action!r}: there are {', '.join(ActionName)}"
            )
        name = ActionName(action)
        body = await _body(name, request)
        try:
            done = await run_in_threadpool(_doing(known, conn_id, name, body=body, user=user, request=request))
        except RefusedActionError as error:
            raise HTTPException(status.HTTP_409_CONFLICT, str(error)) from None
        watch.hurry()
        return {"action": done.action, "dag_id": done.dag_id, "run_id": done.run_id, "user": user.get_name()}


def _doing(
    known: Cached, conn_id: str, name: ActionName, *, body: Body, user: BaseUser, request: Request
) -> Callable[[], Done]:
    asset_id = known.records.asset_ids.get(conn_id)
    view = view_of_action(name, known.records.dags.get(conn_id, ()), has_state=asset_id is not None)
    settings = body.settings()

    def do() -> Done:
        if view.problem is not None:
            raise RefusedActionError(view.problem)
        if view.dag_id is not None:
            requires_access_dag("POST", DagAccessEntity.RUN, param_dag_id=view.dag_id)(request, user)
            return start_run(
                name,
                conn_id=conn_id,
                dag_id=view.dag_id,
                settings=settings,
                user=user.get_name(),
                reason=body.reason,
            )
        if asset_id is None:
            raise RefusedActionError("no DAG uses this pair, so it has no state")
        return steer(
            name,
            conn_id=conn_id,
            asset_id=asset_id,
            rate=settings.get("rate"),
            user=user.get_name(),
            reason=body.reason,
            now=time.time(),
        )

    return do


async def _body(action: ActionName, request: Request) -> Body:
    """The body, read only now: who may not write is told so first, whatever the body is."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
        # A form of another site can send a cookie along, but not this type.
        raise HTTPException(status.HTTP_415_UNSUPPORTED_MEDIA_TYPE, f"the body must be {_JSON}")
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > _MOST_BYTES:
            raise HTTPException(status.HTTP_413_CONTENT_TOO_LARGE, f"the body may have {_MOST_BYTES} bytes")
    try:
        return read_body(action, content)
    except BodyProblem as problem:
        raise HTTPException(status.HTTP_422_UNPROCESSABLE_CONTENT, problem.fields) from None


def _no_pair(conn_id: str) -> HTTPException:
    return HTTPException(
        status.HTTP_404_NOT_FOUND, f"there is no pair {conn_id!r}: no connection and no state of a pair has this id"
    )


def _told(encoded: bytes, *, user: str, may_act: bool) -> Response:
    """What is the same for everybody was encoded once; who asks comes in front."""
    head = json.dumps({"now": time.time(), "user": user, "may_act": may_act}, separators=(",", ":")).encode()
    return Response(head[:-1] + b',"snapshot":' + encoded + b"}", media_type=_JSON, headers=_FRESH)
