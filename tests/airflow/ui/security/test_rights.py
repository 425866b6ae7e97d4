"""Each right alone, as auth managers give them that know single assets and DAGs, at every route of the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from fastapi.testclient import TestClient

from servicebus_pair.core import read_pair_settings
from servicebus_pair.ui.cache.refresh_cache import CachedData, RefreshCache
from servicebus_pair.ui.sources.airflow_queries import PairDag, Records, TaskActivity
from servicebus_pair.ui.sources.event_queries import ActionRecord, HealthEvent
from servicebus_pair.ui.sources.reports import ReportStore
from servicebus_pair.ui.sources.run_queries import Run
from tests.airflow.conftest import UNREACHABLE
from tests.airflow.ui.support.page_client import auth_header
from tests.airflow.ui.support.recovery import write_report

# Asset id of each pair; "aside" is used by no DAG. Each pair has two DAGs.
ASSETS: Final = {"north": 7, "south": 8}
PAIRS: Final = [*ASSETS, "aside"]
DAGS: Final = {pair: (f"{pair}_a_recovery", f"{pair}_b_drill") for pair in ASSETS}
LIST: Final = ("asset", "GET", None, None)


def records() -> Records:
    """Of each DAG everything that the page shows of a DAG; its runs have its name in theirs."""
    dags = {pair: [PairDag(dag_id, paused=False, has_import_errors=False) for dag_id in DAGS[pair]] for pair in ASSETS}
    runs = {pair: [run_of(dag_id) for dag_id in DAGS[pair]] for pair in ASSETS}
    return Records(
        asset_ids=ASSETS,
        dags=dags,
        activities={pair: [drain_of(run) for run in runs[pair]] for pair in ASSETS},
        events={pair: [event for run in runs[pair] for event in events_of(run)] for pair in ASSETS},
        recoveries=runs,
        action_log={pair: [action_of(run) for run in runs[pair]] for pair in ASSETS},
        cost_reports={
            pair: (20.0, {"planned": {"total": 1, "billable": 1, "amount": "1"}}, DAGS[pair][0]) for pair in ASSETS
        },
    )


def run_of(dag_id: str) -> Run:
    return Run(dag_id, f"run-{dag_id}", "success", {"report": True, "moved": {"flights": 4}}, 20.0, 30.0)


def drain_of(run: Run) -> TaskActivity:
    return TaskActivity(run.dag_id, run.run_id, f"task-{run.dag_id}", -1, "running", drains=True, counters={})


def events_of(run: Run) -> Iterator[HealthEvent]:
    yield HealthEvent("failover", 10.0, {"entity": "flights", "reason": "down", "by": "send"}, run, (run,))
    yield HealthEvent("backlog", 10.0, {"payload": {"entities": ["briefings"]}}, run, (run,))
    yield HealthEvent("drained", 40.0, {"moved": {"flights": 4}}, run, (run,))


def action_of(run: Run) -> ActionRecord:
    extra = {"action": "drill", "reason": f"reason-{run.dag_id}", "detail": {"entities": [f"entity-{run.dag_id}"]}}
    return ActionRecord("otto", 20.0, extra, run)


class KnownData(RefreshCache):
    """The records above, rendered once; nothing is queried."""

    def __init__(self, reports: Path) -> None:
        super().__init__(interval=60, reports=ReportStore(str(reports)))
        self._settings = dict.fromkeys(PAIRS, read_pair_settings(UNREACHABLE))
        self._records = records()
        self._render()

    def get(self) -> CachedData:
        return self._cached


@pytest.fixture(scope="module")
def known_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    from servicebus_pair.ui.api.routes import build_app

    reports = tmp_path_factory.mktemp("reports")
    for dag_id in (dag_id for dag_ids in DAGS.values() for dag_id in dag_ids):
        write_report(reports, dag_id, f"run-{dag_id}", "<h1>Report</h1>", lost=0)
    with TestClient(build_app(KnownData(reports))) as client:
        yield client


@pytest.fixture
def rights(monkeypatch: pytest.MonkeyPatch) -> set[tuple[str, str, str | None, str | None]]:
    """The rights of the user: asset or DAG, method, id (``None`` for those that name none), entity of the DAG."""
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

    granted: set[tuple[str, str, str | None, str | None]] = set()

    def asset(self: Any, *, method: str, user: Any, details: Any = None) -> bool:  # noqa: ARG001
        return ("asset", str(method), None if details is None else details.id, None) in granted

    def dag(self: Any, *, method: str, user: Any, access_entity: Any = None, details: Any = None) -> bool:  # noqa: ARG001
        entity = None if access_entity is None else access_entity.name
        return ("dag", str(method), None if details is None else details.id, entity) in granted

    monkeypatch.setattr(SimpleAuthManager, "is_authorized_asset", asset)
    monkeypatch.setattr(SimpleAuthManager, "is_authorized_dag", dag)
    return granted


def names_in(text: str) -> set[str]:
    """The pairs and DAGs that a response names."""
    dags = {dag_id for dag_ids in DAGS.values() for dag_id in dag_ids if dag_id in text}
    return dags | {pair for pair in PAIRS if f'"conn_id":"{pair}"' in text}


def seen_by(page: TestClient, headers: dict[str, str]) -> dict[str, set[str]]:
    paths = ["/api/snapshot", *(f"/api/pairs/{pair}" for pair in PAIRS)]
    responses = {path: page.get(path, headers=headers) for path in paths}
    return {path: names_in(each.text) for path, each in responses.items() if each.status_code == 200}


def test_who_may_read_no_asset_sees_nothing(api_server: TestClient, known_page: TestClient, rights: set[Any]):
    rights |= {("asset", "GET", "7", None), ("asset", "PUT", "7", None)}
    rights |= {
        ("dag", method, dag_id, each)
        for dag_id in DAGS["north"]
        for method in ("GET", "POST")
        for each in (None, "RUN")
    }
    headers = auth_header(api_server, "vic")

    assert seen_by(known_page, headers) == {}
    assert known_page.get("/", headers=headers).status_code == 403
    assert act(known_page, headers, "north", "pause_syphon") == 403


def test_a_pair_is_shown_to_those_only_who_may_read_its_asset(
    api_server: TestClient, known_page: TestClient, rights: set[Any]
):
    headers = auth_header(api_server, "vic")

    rights.add(LIST)
    assert seen_by(known_page, headers) == {"/api/snapshot": {"aside"}, "/api/pairs/aside": {"aside"}}
    rights.add(("asset", "GET", "7", None))
    assert seen_by(known_page, headers) == {
        "/api/snapshot": {"north", "aside"},
        "/api/pairs/north": {"north"},
        "/api/pairs/aside": {"aside"},
    }


@pytest.mark.parametrize("right", [(None,), ("RUN",), (None, "RUN")])
def test_of_a_dag_nothing_is_shown_but_to_those_who_may_read_it_and_its_runs(
    api_server: TestClient, known_page: TestClient, rights: set[Any], *, right: tuple[str | None, ...]
):
    headers = auth_header(api_server, "vic")
    readable = DAGS["north"][0]
    rights |= {LIST, *(("asset", "GET", str(asset_id), None) for asset_id in ASSETS.values())}
    rights |= {("dag", "GET", readable, entity) for entity in right}

    seen = seen_by(known_page, headers)
    reports = {
        dag_id: known_page.get(f"/api/pairs/{pair}/reports/{dag_id}/run-{dag_id}", headers=headers).status_code
        for pair, dag_ids in DAGS.items()
        for dag_id in dag_ids
    }

    shown = {readable} if right == (None, "RUN") else set()
    assert seen["/api/snapshot"] == {*PAIRS, *shown}
    assert [seen[f"/api/pairs/{pair}"] for pair in PAIRS] == [{"north", *shown}, {"south"}, {"aside"}]
    assert reports == {dag_id: 200 if dag_id in shown else 404 for dag_id in reports}


def test_the_runs_of_all_dags_are_asked_for_at_once(
    api_server: TestClient, known_page: TestClient, rights: set[Any], monkeypatch: pytest.MonkeyPatch
):
    from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

    asked: list[list[str]] = []

    def batch(self: Any, requests: Any, *, user: Any) -> bool:  # noqa: ARG001
        asked.append(sorted(each["details"].id for each in requests))
        return all(each["access_entity"].name == "RUN" for each in requests)

    monkeypatch.setattr(SimpleAuthManager, "batch_is_authorized_dag", batch)
    rights |= {LIST, ("asset", "GET", "7", None), *(("dag", "GET", dag_id, None) for dag_id in DAGS["north"])}

    page = known_page.get("/api/pairs/north", headers=auth_header(api_server, "vic"))

    assert names_in(page.text) == {"north", *DAGS["north"]}
    assert asked == [sorted(DAGS["north"])]


def test_who_may_edit_one_asset_acts_on_its_pair_only(api_server: TestClient, known_page: TestClient, rights: set[Any]):
    headers = auth_header(api_server, "vic")
    rights |= {LIST, ("asset", "GET", "7", None), ("asset", "GET", "8", None)}

    assert [may_act(known_page, headers), act(known_page, headers, "north", "drill")] == [False, 403]
    rights.add(("asset", "PUT", "7", None))
    # A body without the entities of a drill: whoever has no right is not told so.
    assert may_act(known_page, headers)
    assert [act(known_page, headers, pair, "drill") for pair in (*PAIRS, "unknown")] == [422, 403, 403, 404]
    rights.remove(("asset", "GET", "8", None))
    assert act(known_page, headers, "south", "drill") == 404


def test_who_may_edit_assets_in_general_has_no_right_to_a_single_one(
    api_server: TestClient, known_page: TestClient, rights: set[Any]
):
    headers = auth_header(api_server, "vic")
    rights |= {LIST, ("asset", "PUT", None, None), ("asset", "GET", "7", None)}

    assert act(known_page, headers, "north", "pause_syphon") == 403


def test_an_action_needs_the_right_to_read_and_to_trigger_its_dag(
    api_server: TestClient, known_page: TestClient, rights: set[Any]
):
    headers = auth_header(api_server, "vic")
    recovery = DAGS["north"][0]
    rights |= {LIST, ("asset", "GET", "7", None), ("asset", "PUT", "7", None), ("dag", "POST", recovery, "RUN")}

    assert act(known_page, headers, "north", "start_syphon") == 409
    rights |= {("dag", "GET", recovery, None), ("dag", "GET", recovery, "RUN")}
    # The DAG is in no database: it is refused later, and for another reason.
    assert act(known_page, headers, "north", "start_syphon") == 409
    rights.remove(("dag", "POST", recovery, "RUN"))
    assert act(known_page, headers, "north", "start_syphon") == 403


def may_act(page: TestClient, headers: dict[str, str]) -> bool:
    return bool(page.get("/api/snapshot", headers=headers).json()["may_act"])


def act(page: TestClient, headers: dict[str, str], pair: str, action: str) -> int:
    url = f"/api/pairs/{pair}/actions/{action}"
    return page.post(url, headers=headers, json={"reason": "a test"}).status_code
