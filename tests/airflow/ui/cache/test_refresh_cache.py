from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from servicebus_pair.ui.cache import refresh_cache
from servicebus_pair.ui.cache.leader_lock import LeaderLock
from servicebus_pair.ui.sources.airflow_queries import Records, TaskActivity
from servicebus_pair.ui.sources.collector import PairStatus
from tests.airflow.conftest import CONN_ID, Pair
from tests.airflow.support.queues import divert
from tests.airflow.ui.support.page_client import wait_for_pair


def wait_for_status(folder: Path) -> PairStatus:
    lock = LeaderLock(folder, CONN_ID)
    while (status := lock.read()) is None or status.counted_at is None:
        time.sleep(0.05)
    return status


def counted_at(cache: refresh_cache.RefreshCache) -> float:
    """Return ``counted_at`` of the displayed backlog, as soon as there is one."""
    while True:
        pair = json.loads(cache.get().pairs.get(CONN_ID, b"null"))
        if pair is not None and pair["backlog"]["counted_at"] is not None:
            return float(pair["backlog"]["counted_at"])
        time.sleep(0.05)


@pytest.mark.usefixtures("pair")
def test_two_caches_poll_as_often_as_one_and_the_survivor_takes_over(tmp_path: Path):
    folder = tmp_path / "shared"
    with closing(refresh_cache.RefreshCache(interval=1, folder=folder, pairs=("*",))) as survivor:
        with closing(refresh_cache.RefreshCache(interval=1, folder=folder, pairs=("*",))) as leader:
            counted_at(leader)
            counted_at(survivor)
            started, before = time.monotonic(), wait_for_status(folder)
            for _ in range(2):
                previous = counted_at(leader)
                while counted_at(leader) == previous or counted_at(survivor) == previous:
                    time.sleep(0.05)
            after, elapsed = wait_for_status(folder), time.monotonic() - started
            # One management call per interval, and one for the plan each minute.
            assert after.operations - before.operations <= elapsed / 1 + 2

        closed_at = time.time()
        while counted_at(survivor) < closed_at:
            time.sleep(0.05)


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
    cache = refresh_cache.RefreshCache(interval=1, pairs=("*",))
    try:
        return cache.get()
    finally:
        cache.close()


def test_database_error_is_displayed(monkeypatch: pytest.MonkeyPatch):
    def fail(_: object) -> Records:
        raise RuntimeError("locked")

    assert json.loads(first_data(monkeypatch, fail).head)["problem"] == (
        "Airflow's database cannot be read: RuntimeError"
    )


def test_requests_do_not_each_wait_while_the_database_does_not_answer(monkeypatch: pytest.MonkeyPatch):
    answers, waits = threading.Event(), list[float]()

    class Ready(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            waits.append(timeout)
            return super().wait(timeout)

    monkeypatch.setattr(refresh_cache, "read_records", lambda _: answers.wait(60) and Records())
    monkeypatch.setattr(refresh_cache, "_FIRST_RESULT_TIMEOUT", 0.3)
    with closing(refresh_cache.RefreshCache(interval=0.1)) as cache:
        monkeypatch.setattr(cache, "_ready", Ready())
        cache.get()
        cache.get()
        answers.set()

    assert waits[1] == 0.0 < waits[0] <= 0.3


def test_invalid_data_of_one_pair_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch):
    task = TaskActivity("dag", "run", "task", -1, "success", drains=False, counters={"entities": 3})
    records = Records(states={"bad_pair": {}, "good_pair": {}}, activities={"bad_pair": [task]})

    pairs = first_data(monkeypatch, lambda _: records).pairs

    assert {conn_id: json.loads(pair)["problem"] for conn_id, pair in pairs.items()} == {
        "bad_pair": "its data cannot be displayed: AttributeError",
        "good_pair": "no settings",
    }
