"""Attacks on reports: an XCom names a file, a link or a pipe lies below the root, a file system hangs."""

from __future__ import annotations

import itertools
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from servicebus_pair.core.model import daemon_thread
from servicebus_pair.ui.sources import reports as reports_module
from servicebus_pair.ui.sources.reports import ReportStore, ReportSummary
from tests.airflow.conftest import RunDag
from tests.airflow.ui.support.page_client import PAIR_URL, wait_for_pair
from tests.airflow.ui.support.recovery import run_recovery, write_report

CANARY = "canary of another file"


async def report_of(root: str, dag_id: str = "flights_recovery", run_id: str = "manual__1") -> bytes | None:
    found = await ReportStore(root).page(dag_id, run_id)
    if found is None:
        return None
    size, pieces = found
    content = b"".join([each async for each in pieces])
    assert len(content) == size
    return content


@pytest.mark.usefixtures("unreachable_pair")
def test_an_xcom_cannot_name_the_file_that_viewers_read(run_dag: RunDag, page: TestClient, tmp_path: Path):
    (tmp_path / "report.html").write_text(CANARY)
    run_id = run_recovery(run_dag, {"report": str(tmp_path / "report.html"), "lost": 0, "moved": {"flights": 3}})
    wait_for_pair(page, lambda pair: pair["incidents"] and pair["incidents"][0]["runs"])

    response = page.get(f"{PAIR_URL}/reports/flights_recovery/{run_id}")

    assert (response.status_code, CANARY in response.text) == (404, False)


@pytest.mark.usefixtures("unreachable_pair")
def test_a_file_system_that_hangs_stops_nothing_but_the_reports(
    run_dag: RunDag, page: TestClient, reports: Path, monkeypatch: pytest.MonkeyPatch
):
    run_id = run_recovery(run_dag, {"report": True, "moved": {"flights": 3}})
    write_report(reports, "flights_recovery", run_id, "<h1>Report</h1>", lost=0)
    wait_for_pair(page, lambda pair: pair["incidents"] and pair["incidents"][0]["runs"])
    released = threading.Event()
    monkeypatch.setattr(reports_module, "_read_file", lambda *_: released.wait(60))
    monkeypatch.setattr(daemon_thread, "HANG_SECONDS", 1.0)
    try:
        with ThreadPoolExecutor(50) as many:
            asked = [many.submit(page.get, f"{PAIR_URL}/reports/flights_recovery/{run_id}") for _ in range(50)]
            started = time.monotonic()
            seen = page.get("/api/snapshot")
            waited = time.monotonic() - started
            statuses = {each.result().status_code for each in asked}
    finally:
        released.set()

    assert (seen.status_code, statuses) == (200, {503})
    assert waited < 20  # and not the minute that the file system hangs


@pytest.mark.parametrize("name", ["report.html", "reconcile", "manual__1", "flights_recovery"])
async def test_links_below_the_root_are_not_followed(tmp_path: Path, name: str):
    outside, root = tmp_path / "outside", tmp_path / "root"
    for folder in (outside, root):
        write_report(folder, "flights_recovery", "manual__1", CANARY, lost=7)
    parts = ("flights_recovery", "manual__1", "reconcile", "report.html")
    below = Path(*parts[: parts.index(name) + 1])
    (root / below).rename(tmp_path / "moved")
    (root / below).symlink_to(outside / below)

    assert await report_of(str(root)) is None
    for scheme in ("file", "local", "FILE"):
        assert await report_of(f"{scheme}://{root}") is None
    # The root itself may be a link: who configures it is trusted.
    (tmp_path / "linked").symlink_to(outside)
    assert await report_of(str(tmp_path / "linked")) == CANARY.encode()


async def test_only_regular_files_of_limited_size_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(reports_module._LIMITS, "report.html", 1000)
    file = write_report(tmp_path, "flights_recovery", "manual__1", "x" * 1000, lost=0) / "report.html"
    assert await report_of(str(tmp_path)) == b"x" * 1000

    file.write_text("x" * 1001)
    assert await report_of(str(tmp_path)) is None
    for make in (os.mkfifo, os.mkdir):
        file.unlink()
        make(file)
        assert await report_of(str(tmp_path)) is None


async def test_a_report_is_read_in_pieces_of_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reports_module, "_PIECE_BYTES", 4)
    file = write_report(tmp_path, "flights_recovery", "manual__1", "<h1>Report</h1>", lost=0) / "report.html"
    assert await report_of(str(tmp_path)) == b"<h1>Report</h1>"

    found = await ReportStore(str(tmp_path)).page("flights_recovery", "manual__1")
    assert found is not None
    size, pieces = found
    assert (size, await anext(pieces)) == (15, b"<h1>")
    file.rename(tmp_path / "moved")
    file.write_text("<h1>Retort</h1>")
    with pytest.raises(OSError, match="was replaced while it was sent"):
        await anext(pieces)


@pytest.mark.parametrize(
    ("dag_id", "run_id"),
    [
        *(
            ("flights_recovery", run_id)
            for run_id in ("..", ".", "", "a/b", "/etc", "a\0b", "..:", "x" * 251, "\ud800")
        ),
        *((dag_id, "manual__1") for dag_id in ("..", "a/../b", "", "a\0")),
    ],
)
async def test_an_id_that_is_a_path_has_no_report(tmp_path: Path, dag_id: str, run_id: str):
    for folder in (tmp_path, tmp_path / "below"):
        write_report(folder, "flights_recovery", "manual__1", CANARY, lost=0)

    # Where the path would lead.
    with suppress(OSError, ValueError):
        folder = tmp_path.joinpath("below", dag_id, run_id, "reconcile")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.html").write_text(CANARY)
    store = ReportStore(str(tmp_path / "below"))
    assert await store.page(dag_id, run_id) is None
    assert store.summary(dag_id, run_id) is None


@pytest.mark.parametrize(
    "summary",
    [
        *("", "[]", '{"totals": {"lost": true}}', '{"totals": {"lost": "0"}}', "[" * 200_000),
        *(f'{{"totals": {{"lost": {lost}}}, "judgement": "proven"}}' for lost in (-1, 10**400)),
    ],
    ids=lambda text: text[:40],
)
def test_a_summary_that_is_no_summary_proves_nothing(tmp_path: Path, summary: str):
    folder = write_report(tmp_path, "flights_recovery", "manual__1", "", lost=0)
    (folder / "summary.json").write_text(summary)
    store = ReportStore(str(tmp_path))

    assert store.summary("flights_recovery", "manual__1") is None
    store._summaries.submit(lambda: None).result(timeout=10)
    assert store.summary("flights_recovery", "manual__1") is None


def test_lookups_do_not_pile_up_behind_a_store_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(reports_module, "_MAX_SUMMARIES", 3)
    clock, queued = itertools.count(step=1000), list[tuple[str, str]]()
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    store = ReportStore(str(tmp_path))
    monkeypatch.setattr(store._summaries, "submit", lambda _, key: queued.append(key))

    for _ in range(5):
        for number in range(5):
            store.summary("flights_recovery", f"manual__{number}")

    assert queued == [("flights_recovery", f"manual__{number}") for number in range(3)]
    for key in queued:
        store._look_up(key)
    for number in range(5):
        store.summary("flights_recovery", f"manual__{number}")
    assert len(queued) == 6


async def test_reports_may_lie_in_an_object_store():
    from airflow.sdk.io import attach
    from fsspec.implementations.memory import MemoryFileSystem

    attach(protocol="memory", fs=MemoryFileSystem())
    memory = MemoryFileSystem()
    folder = "/reports/flights_recovery/manual__2026-01-01T00~3A00~3A00~2B00~3A00/reconcile"
    memory.pipe(f"{folder}/report.html", b"<h1>Report</h1>")
    memory.pipe(f"{folder}/summary.json", b'{"totals": {"lost": 0}}')
    store = ReportStore("memory://reports")

    assert store.summary("flights_recovery", "manual__2026-01-01T00:00:00+00:00") is None
    store._summaries.submit(lambda: None).result(timeout=10)
    assert store.summary("flights_recovery", "manual__2026-01-01T00:00:00+00:00") == ReportSummary(0, None)
    run_id = "manual__2026-01-01T00:00:00+00:00"
    assert await report_of("memory://reports", run_id=run_id) == b"<h1>Report</h1>"
