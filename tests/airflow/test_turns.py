"""Several processes of a server take turns at looking at a pair, so that it is read as often as by one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from servicebus_pair.core.administration import QueueDepth
from servicebus_pair.core.backlog import BacklogPlan, Drift
from servicebus_pair.ui.looking import Look, Peeked
from servicebus_pair.ui.snapshot import DeadLetterView, NamespaceView
from servicebus_pair.ui.turns import Turn
from tests.airflow.conftest import CONN_ID, PROJECT, Pair

LETTER = DeadLetterView(queue="q", message_id="<b>", reason="r", description="", destination=None, at=5.0)
SEEN = Look(
    primary=NamespaceView(name="contoso", reachable=False, error="refused", since=4.5),
    secondary=NamespaceView(name="contoso-dr", reachable=True, latency_ms=1.25),
    depths=[QueueDepth("q", active=1, scheduled=2, dead_lettered=3, size_bytes=4)],
    counted_at=7.5,
    counts=[(2.5, 9), (7.5, 1)],
    plan=BacklogPlan(("q",), (), (Drift("q", "lock_duration", "PT1M", "PT30S"),), ()),
    peeked=Peeked(oldest={"q": 1.5}, waiting={"flights": 3}, dead_letters=[LETTER], reasons={"r": 3}),
    operations=11,
)
# Another process of the server: says what it knows each time it is asked, and ends when it is told to.
BESIDE = """
import sys, pathlib
from servicebus_pair.ui.watching import Watch
watch = Watch(interval=1, folder=pathlib.Path(sys.argv[1]))
for line in sys.stdin:
    print("PAIR", watch.ask().pairs.get(sys.argv[2], b"null").decode(), flush=True)
"""


class Beside:
    """A second process of the server."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-c", BESIDE, str(folder), CONN_ID]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=PROJECT
        )

    def counted_at(self) -> float:
        """When what it shows was counted, as soon as it shows anything."""
        while True:
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            print(file=self.process.stdin, flush=True)
            told = next(line for line in self.process.stdout if line.startswith("PAIR "))  # and not what Airflow logs
            pair = json.loads(told.removeprefix("PAIR "))
            if pair is not None and pair["backlog"]["counted_at"] is not None:
                return float(pair["backlog"]["counted_at"])
            time.sleep(0.05)

    def die(self) -> None:
        self.process.kill()
        self.process.communicate()


def seen_by(folder: Path) -> Look:
    """What was last written down, as soon as there is something."""
    turn = Turn(folder, CONN_ID)
    while (look := turn.get()) is None or look.counted_at is None:
        time.sleep(0.05)
    return look


def test_one_looks_and_the_other_reads_what_it_saw(tmp_path: Path):
    mine, other = Turn(tmp_path, CONN_ID), Turn(tmp_path, CONN_ID)

    assert (mine.take(), other.take(), mine.take()) == (True, False, True)
    mine.put(SEEN)
    assert other.get() == SEEN
    mine.leave()
    assert (other.take(), mine.take()) == (True, False)
    assert {path.stat().st_mode & 0o077 for path in tmp_path.iterdir()} == {0}


def test_pairs_have_turns_of_their_own(tmp_path: Path):
    mine, other = Turn(tmp_path, CONN_ID), Turn(tmp_path, "another")

    assert (mine.take(), other.take()) == (True, True)


def test_where_nothing_can_be_written_each_looks_for_itself(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    (tmp_path / "file").touch()
    turns = [Turn(tmp_path / "file" / "folder", CONN_ID) for _ in range(2)]

    assert [turn.take() for turn in turns] == [True, True]
    turns[0].put(SEEN)
    assert turns[1].get() is None
    assert "each process looks for itself" in caplog.text


def test_what_cannot_be_read_or_is_old_is_nothing(tmp_path: Path):
    import os

    turn = Turn(tmp_path, CONN_ID)
    turn.put(SEEN)
    (file,) = tmp_path.iterdir()
    old = time.time() - 61
    os.utime(file, (old, old))
    assert turn.get() is None
    file.write_text('{"primary": 3}')
    assert turn.get() is None


@pytest.mark.slow
def test_two_processes_read_a_namespace_as_often_as_one_and_one_takes_over_when_the_other_dies(
    pair: Pair, tmp_path: Path
):
    folder = tmp_path / "shared"
    one, two = Beside(folder), Beside(folder)
    try:
        one.counted_at()
        two.counted_at()
        began, before = time.monotonic(), seen_by(folder)
        for _ in range(2):
            later = one.counted_at()
            while one.counted_at() == later or two.counted_at() == later:
                time.sleep(0.05)
        after, elapsed = seen_by(folder), time.monotonic() - began
        # A call each interval, not two, and one more for the comparison of each minute.
        assert after.operations - before.operations <= elapsed / 1 + 2

        one.die()
        last = time.time()
        while two.counted_at() < last:
            time.sleep(0.05)
    finally:
        one.die()
        two.die()
    assert pair.primary["contoso"]
