"""Routes that the plugin mounts. Each checks the user's permissions with Airflow's auth manager.

======================================================  ==========  ==================================================
route                                                   permission  response
======================================================  ==========  ==================================================
``GET /``, ``GET /static/{name}``                       read        the page
``GET /api/snapshot``                                   read        all pairs (``ui.views``) and the current user
``GET /api/pairs/{conn_id}``                            read        one pair
``GET /api/pairs/{conn_id}/reports/{dag_id}/{run_id}``  read        the reconcile report of a recovery, HTML
``POST /api/pairs/{conn_id}/actions/{action}``          write       202 and the action's result
======================================================  ==========  ==================================================

Reading requires ``GET`` on assets and on that of the pair, writing ``PUT`` on that of the pair and, for an action that
triggers a DAG, permission to trigger that DAG. Errors are JSON: ``{"detail": ...}``.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from fastapi import Depends, FastAPI, HTTPException, Request, Response, status
from fastapi.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect

from servicebus_pair.airflow_runtime.airflow_version import AIRFLOW_HOME, BaseUser, get_user, server_conf
from servicebus_pair.ui.api.actions_service import ActionRefusedError, ActionResult, set_syphon_control, trigger_run
from servicebus_pair.ui.api.pieces import PiecesResponse, pieces_of
from servicebus_pair.ui.api.rights import Method, check_may_read_assets, hidden_dags, may_trigger, may_use_asset
from servicebus_pair.ui.api.schemas import ActionRequest, RequestBodyError, parse_request
from servicebus_pair.ui.api.static_files import REPORT_HEADERS, StaticFile, load_static_file
from servicebus_pair.ui.cache.refresh_cache import CachedData, RefreshCache
from servicebus_pair.ui.sources.reports import ReportStore
from servicebus_pair.ui.view.action_catalogue import ActionName, build_action_view

_MAX_BODY_BYTES: Final = 65_536
_BODY_SECONDS: Final = 20.0
_DEFAULT_INTERVAL_SECONDS: Final = 5.0
_JSON: Final = "application/json"
_JSON_HEADERS: Final = {"Cache-Control": "no-store"}
User = Annotated[BaseUser, Depends(get_user)]


def build_app(cache: RefreshCache | None = None) -> FastAPI:
    """Return the application. Airflow does not authenticate requests to a mounted application, so each route does.

    :param cache: source of the displayed data; by default one with the settings of ``[servicebus_pair]``.
    """
    if cache is None:
        reports = ReportStore(server_conf.get("servicebus_pair", "reports", fallback=None))
        pairs = [name.strip() for name in server_conf.get("servicebus_pair", "page_pairs", fallback="").split(",")]
        cache = RefreshCache(
            interval=_interval_seconds(),
            folder=Path(AIRFLOW_HOME, "servicebus_pair"),
            reports=reports,
            pairs=[name for name in pairs if name] or None,
        )
    app = FastAPI(
        title="Service Bus pairs",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        dependencies=[Depends(check_may_read_assets)],
    )

    @app.middleware("http")
    async def add_headers(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        response = await call_next(request)
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        return response

    _add_page(app)
    _add_read_routes(app, cache)
    _add_action_route(app, cache)

    # A catch-all route, so that unauthenticated requests to unknown paths get 401 and not 404.
    @app.api_route("/{path:path}", methods=["GET", "POST", "PUT", "PATCH", "DELETE"])
    def not_found(path: str) -> None:
        """Return 404 for every other path."""
        raise HTTPException(status.HTTP_404_NOT_FOUND, f"there is no {path!r} here")

    return app


def _interval_seconds() -> float:
    """Return ``[servicebus_pair] page_interval`` in seconds: 5 by default, at least 1."""
    return max(1.0, server_conf.getfloat("servicebus_pair", "page_interval", fallback=_DEFAULT_INTERVAL_SECONDS))


def _add_page(app: FastAPI) -> None:
    @app.get("/")
    def page() -> Response:
        """Return the page."""
        return static_file("page.html")

    @app.get("/static/{name}")
    def static_file(name: str) -> Response:
        """Return a script or stylesheet of the page."""
        found = load_static_file(name)
        if found is None:
            raise HTTPException(status.HTTP_404_NOT_FOUND, f"there is no {name!r} here")
        return _file_response(found)


def _add_read_routes(app: FastAPI, cache: RefreshCache) -> None:
    @app.get("/api/snapshot")
    def snapshot(user: User) -> Response:
        """Return all pairs, from the cache."""
        cached = cache.get()
        shown = frozenset(conn_id for conn_id in cached.pairs if _may("GET", cached, conn_id, user))
        may_act = any(_may("PUT", cached, conn_id, user) for conn_id in shown)
        snapshot = cached.snapshot(_hidden_dags(cached, shown, user), shown)
        own = {"now": time.time(), "user": user.get_name(), "may_act": may_act}
        head = json.dumps(own, separators=(",", ":")).encode()
        return pieces_of(head[:-1] + b',"snapshot":', snapshot, b"}", media_type=_JSON, headers=_JSON_HEADERS)

    @app.get("/api/pairs/{conn_id}")
    def pair(conn_id: str, user: User) -> Response:
        """Return one pair."""
        cached = _readable(cache, conn_id, user)
        found = cached.pairs_without(_hidden_dags(cached, [conn_id], user))[conn_id]
        return pieces_of(found, media_type=_JSON, headers=_JSON_HEADERS)

    @app.get("/api/pairs/{conn_id}/reports/{dag_id}/{run_id:path}")
    async def reconcile_report(conn_id: str, dag_id: str, run_id: str, user: User) -> Response:
        """Return the reconcile report of one recovery; its headers prevent scripts from running."""
        cached = await run_in_threadpool(_readable, cache, conn_id, user)
        event_runs = [
            run for event in cached.records.events.get(conn_id, ()) for run in (*event.triggered_runs, event.source_run)
        ]
        runs = [*cached.records.recoveries.get(conn_id, ()), *(run for run in event_runs if run is not None)]
        report = None
        is_known = any((run.dag_id, run.run_id) == (dag_id, run_id) for run in runs)
        if is_known and not await run_in_threadpool(hidden_dags, {dag_id}, user):
            try:
                report = await cache.reports.page(dag_id, run_id)
            except TimeoutError:
                raise HTTPException(
                    status.HTTP_503_SERVICE_UNAVAILABLE, "the store of the reports does not answer"
                ) from None
        if report is None:
            raise HTTPException(
                status.HTTP_404_NOT_FOUND,
                f"{run_id!r} of {dag_id!r} has no report that you may and this server can read",
            )
        size, pieces = report
        return PiecesResponse(pieces, size=size, media_type="text/html", headers=REPORT_HEADERS)


def _add_action_route(app: FastAPI, cache: RefreshCache) -> None:
    @app.post("/api/pairs/{conn_id}/actions/{action}", status_code=status.HTTP_202_ACCEPTED)
    async def act(conn_id: str, action: str, request: Request, user: User) -> dict[str, Any]:
        """Execute an action and record it in the audit log."""
        _check_origin(request)
        cached = await run_in_threadpool(_readable, cache, conn_id, user)
        if not await run_in_threadpool(_may, "PUT", cached, conn_id, user):
            raise HTTPException(status.HTTP_403_FORBIDDEN, f"you may not edit the asset of {conn_id!r}")
        if action not in tuple(ActionName):
            raise HTTPException(
                status.HTTP_404_NOT_FOUND, f"there is no action {action!r}: there are {', '.join(ActionName)}"
            )
        name = ActionName(action)
        body = await _read_body(name, request)
        try:
            result = await run_in_threadpool(_execute, cached, conn_id, name, body=body, user=user)
        except ActionRefusedError as error:
            raise HTTPException(status.HTTP_409_CONFLICT, str(error)) from None
        cache.refresh_now()
        return {"action": result.action, "dag_id": result.dag_id, "run_id": result.run_id, "user": user.get_name()}


def _execute(
    cached: CachedData, conn_id: str, name: ActionName, *, body: ActionRequest, user: BaseUser
) -> ActionResult:
    asset_id = cached.records.asset_ids.get(conn_id)
    hidden = _hidden_dags(cached, [conn_id], user)
    dags = [dag for dag in cached.records.dags.get(conn_id, ()) if dag.dag_id not in hidden]
    action = build_action_view(name, dags, has_state=asset_id is not None)
    settings = body.settings()
    if action.problem is not None:
        raise ActionRefusedError(action.problem)
    if action.dag_id is not None:
        if not may_trigger(action.dag_id, user):
            raise HTTPException(status.HTTP_403_FORBIDDEN, f"you may not trigger {action.dag_id!r}")
        return trigger_run(
            name,
            conn_id=conn_id,
            dag_id=action.dag_id,
            settings=settings,
            user=user.get_name(),
            reason=body.reason,
        )
    if asset_id is None:
        raise ActionRefusedError("no DAG uses this pair, so it has no state")
    return set_syphon_control(
        name,
        conn_id=conn_id,
        asset_id=asset_id,
        rate=settings.get("rate"),
        user=user.get_name(),
        reason=body.reason,
        now=time.time(),
    )


def _readable(cache: RefreshCache, conn_id: str, user: BaseUser) -> CachedData:
    """Return the data, if it has a pair of this id that the user may read."""
    cached = cache.get()
    if conn_id not in cached.pairs or not _may("GET", cached, conn_id, user):
        raise HTTPException(
            status.HTTP_404_NOT_FOUND,
            f"there is no pair {conn_id!r} that you may read: no connection or pair state has this id, or its asset "
            "is not yours to read",
        )
    return cached


def _may(method: Method, cached: CachedData, conn_id: str, user: BaseUser) -> bool:
    return may_use_asset(method, cached.records.asset_ids.get(conn_id), user)


def _hidden_dags(cached: CachedData, conn_ids: Iterable[str], user: BaseUser) -> frozenset[str]:
    return hidden_dags(frozenset[str]().union(*(cached.dag_ids[conn_id] for conn_id in conn_ids)), user)


def _check_origin(request: Request) -> None:
    """Refuse what a browser sends for a page of another site; other programs send neither header."""
    origin, site = request.headers.get("origin"), request.headers.get("sec-fetch-site", "same-origin")
    own = {request.headers.get("host"), urlsplit(server_conf.get("api", "base_url", fallback="")).netloc}
    if site not in ("same-origin", "none") or (
        origin is not None and origin.partition("://")[2] not in own - {"", None}
    ):
        raise HTTPException(status.HTTP_403_FORBIDDEN, "the request comes from a page of another site")


async def _read_body(action: ActionName, request: Request) -> ActionRequest:
    """Read the body here and not as a route parameter, so that 401 and 403 come before any error about the body."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
        # CSRF: another site's form is sent with the user's cookie, but cannot have this content type.
        raise HTTPException(status.HTTP_415_UNSUPPORTED_MEDIA_TYPE, f"the body must be {_JSON}")
    content = b""
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            async for chunk in request.stream():
                content += chunk
                if len(content) > _MAX_BODY_BYTES:
                    raise HTTPException(
                        status.HTTP_413_CONTENT_TOO_LARGE, f"the body must not be larger than {_MAX_BODY_BYTES} bytes"
                    )
    except TimeoutError:
        raise HTTPException(
            status.HTTP_408_REQUEST_TIMEOUT, f"the body did not arrive in {_BODY_SECONDS:g} s"
        ) from None
    except ClientDisconnect:
        # An error of the server would be logged with a traceback each time.
        raise HTTPException(status.HTTP_400_BAD_REQUEST, "the connection ended before the body") from None
    try:
        return parse_request(action, content)
    except RequestBodyError as error:
        raise HTTPException(status.HTTP_422_UNPROCESSABLE_CONTENT, error.fields) from None


def _file_response(file: StaticFile) -> Response:
    return Response(file.content, media_type=file.media_type, headers=file.headers)
