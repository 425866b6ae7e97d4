from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from servicebus_pair.ui.cache import refresh_cache
from servicebus_pair.ui.cache.leader_lock import LeaderLock
from servicebus_pair.ui.sources.airflow_queries import Records, TaskActivity
from servicebus_pair.ui.sources.collector import PairStatus
from tests.airflow.conftest import CONN_ID, PROJECT, Pair
from tests.airflow.support.queues import divert
from tests.airflow.ui.support.page_client import wait_for_pair

# A second API-server process: prints the pair's JSON for each line on stdin.
SERVER_PROCESS = """
import sys, pathlib
from servicebus_pair.ui.cache.refresh_cache import RefreshCache
cache = RefreshCache(interval=1, folder=pathlib.Path(sys.argv[1]))
for line in sys.stdin:
    print("PAIR", cache.get().pairs.get(sys.argv[2], b"null").decode(), flush=True)
"""


class ServerProcess:
    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", SERVER_PROCESS, str(folder), CONN_ID]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=PROJECT
        )

    def counted_at(self) -> float:
        """Return ``counted_at`` of the displayed backlog, as soon as there is one."""
        while True:
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            print(file=self.process.stdin, flush=True)
            line = next(line for line in self.process.stdout if line.startswith("PAIR "))  # skips Airflow's log
            pair = json.loads(line.removeprefix("PAIR "))
            if pair is not None and pair["backlog"]["counted_at"] is not None:
                return float(pair["backlog"]["counted_at"])
            time.sleep(0.05)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


def wait_for_status(folder: Path) -> PairStatus:
    lock = LeaderLock(folder, CONN_ID)
    while (status := lock.read()) is None or status.counted_at is None:
        time.sleep(0.05)
    return status


@pytest.mark.slow
@pytest.mark.usefixtures("pair")
def test_two_processes_poll_as_often_as_one_and_the_survivor_takes_over(tmp_path: Path):
    folder = tmp_path / "shared"
    one, two = ServerProcess(folder), ServerProcess(folder)
    try:
        one.counted_at()
        two.counted_at()
        started, before = time.monotonic(), wait_for_status(folder)
        for _ in range(2):
            previous = one.counted_at()
            while one.counted_at() == previous or two.counted_at() == previous:
                time.sleep(0.05)
        after, elapsed = wait_for_status(folder), time.monotonic() - started
        # One management call per interval, and one for the plan each minute.
        assert after.operations - before.operations <= elapsed / 1 + 2

        one.kill()
        killed_at = time.time()
        while two.counted_at() < killed_at:
            time.sleep(0.05)
    finally:
        one.kill()
        two.kill()


@pytest.mark.usefixtures("pair")
def test_polling_does_not_depend_on_the_number_of_requests(page: TestClient):
    before = wait_for_pair(page, lambda pair: pair["backlog"]["counted_at"] is not None)["cost"]["page"]
    started = time.monotonic()

    for _ in range(200):
        page.get("/api/snapshot")
    after = wait_for_pair(page, lambda pair: pair["cost"]["page"] > before)["cost"]["page"]

    # One management call per interval of half a second, and one for the plan each minute.
    assert after - before <= (time.monotonic() - started) / 0.5 + 2


def test_frozen_namespace_does_not_delay_responses_and_previous_data_remains(pair: Pair, page: TestClient):
    asyncio.run(divert(pair, count=3))
    wait_for_pair(page, lambda pair: pair["backlog"]["messages"] == 3)
    pair.secondary.freeze()
    try:
        seen = wait_for_pair(page, lambda pair: pair["secondary"]["reachable"] is False and pair["backlog"]["error"])
        started = time.monotonic()
        response = page.get("/api/snapshot")
    finally:
        pair.secondary.thaw()

    assert response.status_code == 200
    assert time.monotonic() - started < 0.3
    assert (seen["backlog"]["messages"], seen["secondary"]["error"]) == (3, "no response within 3 s")


def first_data(monkeypatch: pytest.MonkeyPatch, records: Callable[[object], Records]) -> refresh_cache.CachedData:
    monkeypatch.setattr(refresh_cache, "read_records", records)
    monkeypatch.setattr(refresh_cache, "load_pair_settings", lambda conn_ids: dict.fromkeys(conn_ids, "no settings"))
    cache = refresh_cache.RefreshCache(interval=1)
    try:
        return cache.get()
    finally:
        cache.close()


def test_database_error_is_displayed(monkeypatch: pytest.MonkeyPatch):
    def fail(_: object) -> Records:
        raise RuntimeError("locked")

    assert json.loads(first_data(monkeypatch, fail).snapshot)["problem"] == (
        "Airflow's database cannot be read: RuntimeError"
    )


def test_invalid_data_of_one_pair_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch):
    task = TaskActivity("dag", "run", "task", -1, "success", drains=False, counters={"entities": 3})
    records = Records(states={"bad_pair": {}, "good_pair": {}}, activities={"bad_pair": [task]})

    pairs = first_data(monkeypatch, lambda _: records).pairs

    assert {conn_id: json.loads(pair)["problem"] for conn_id, pair in pairs.items()} == {
        "bad_pair": "its data cannot be displayed: AttributeError",
        "good_pair": "no settings",
    }
