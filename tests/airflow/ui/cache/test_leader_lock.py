from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from servicebus_pair.core.model.results import Drift
from servicebus_pair.core.protocol.backlog_queues import BacklogPlan
from servicebus_pair.core.sdk.administration.data_plane import QueueDepth
from servicebus_pair.ui.cache.leader_lock import LeaderLock
from servicebus_pair.ui.sources.collector import PairStatus, PeekResult
from servicebus_pair.ui.views import DeadLetterView, NamespaceView
from tests.airflow.conftest import CONN_ID

LETTER = DeadLetterView(queue="q", message_id="<b>", reason="r", description="", destination=None, at=5.0)
STATUS = PairStatus(
    primary=NamespaceView(name="contoso", reachable=False, error="refused", since=4.5),
    secondary=NamespaceView(name="contoso-dr", reachable=True, latency_ms=1.25),
    depths=[QueueDepth("q", active=1, scheduled=2, dead_lettered=3, size_bytes=4)],
    counted_at=7.5,
    counts=[(2.5, 9), (7.5, 1)],
    plan=BacklogPlan(("q",), (), (Drift("q", "lock_duration", "PT1M", "PT30S"),), ()),
    peeked=PeekResult(oldest={"q": 1.5}, waiting={"flights": 3}, dead_letters=[LETTER], reasons={"r": 3}),
    operations=11,
)


def test_follower_reads_what_the_leader_published_and_takes_over(tmp_path: Path):
    leader, follower = LeaderLock(tmp_path, CONN_ID), LeaderLock(tmp_path, CONN_ID)

    assert (leader.try_acquire(), follower.try_acquire(), leader.try_acquire()) == (True, False, True)
    leader.publish(STATUS)
    assert follower.read() == STATUS
    leader.release()
    assert (follower.try_acquire(), leader.try_acquire()) == (True, False)
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}


def test_each_pair_has_its_own_leader(tmp_path: Path):
    assert LeaderLock(tmp_path, CONN_ID).try_acquire()
    assert LeaderLock(tmp_path, "another").try_acquire()


def test_every_process_leads_without_a_usable_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "file").touch()
    locks = [LeaderLock(tmp_path / "file" / "folder", CONN_ID) for _ in range(2)]

    assert [lock.try_acquire() for lock in locks] == [True, True]
    locks[0].publish(STATUS)
    assert locks[1].read() is None
    assert "each process polls for itself" in caplog.text


def test_old_or_invalid_status_is_ignored(tmp_path: Path):
    lock = LeaderLock(tmp_path, CONN_ID)
    lock.publish(STATUS)
    (file,) = tmp_path.iterdir()
    old = time.time() - 61
    os.utime(file, (old, old))
    assert lock.read() is None
    file.write_text('{"primary": 3}')
    assert lock.read() is None
