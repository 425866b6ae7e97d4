"""A drain by spark-submit whose executors are killed: Spark tries their tasks again, and nothing is lost."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from servicebus_pair.spark import Place, reconcile
from tests.spark.conftest import CANARY, Pair
from tests.spark.diverting import own_backlog
from tests.spark.killing import caught_at_work, hosting
from tests.spark.recorded import syphoned
from tests.spark.submitting import REFERENCE, home_of_its_own, submitted
from tests.system.demo.layout import PROJECT

COUNT = 3000
RATE = "300"  # so each of the two tasks takes ten seconds, and is killed in its first one or two
LOCKED = timedelta(seconds=20)  # so long what the killed process held is locked: a minute, in a real backlog
JOB = PROJECT / "provider" / "servicebus_pair" / "spark" / "jobs" / "drain.py"


def same(workers: list[psutil.Process]) -> list[psutil.Process]:
    return workers


def executor_of_one(workers: list[psutil.Process]) -> list[psutil.Process]:
    return [hosting(workers[0])]


KILLED: dict[str, tuple[str, Callable[[list[psutil.Process]], list[psutil.Process]]]] = {
    "python-worker": ("local[2,4]", same),
    "executor": ("local-cluster[2,1,1024]", executor_of_one),
}


@pytest.mark.slow
@pytest.mark.timeout(600)  # a bound of what hangs
@pytest.mark.parametrize("what", KILLED)
def test_what_is_killed_is_tried_again_and_nothing_is_lost(what: str, spark: SparkSession, pair: Pair, tmp_path: Path):
    master, victims = KILLED[what]
    own = own_backlog(pair, tmp_path, f"own-{uuid.uuid4().hex[:8]}")
    queue, ledger, events, log = own.fresh_queue(), tmp_path / "ledger", tmp_path / "events", tmp_path / "submit.log"
    own.lock_for(LOCKED)
    ids = own.divert(ledger, queue, COUNT)
    events.mkdir()
    given = {
        "--pair": REFERENCE,
        "--ledger": str(ledger),
        "--run": "home",
        "--report": str(tmp_path / "drain.json"),
        "--rate": RATE,
    }
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    home = home_of_its_own(tmp_path / "spark")
    with submitted(own, JOB, given, log=log, master=master, conf=conf, home=home) as program:
        with caught_at_work([program.pid], ledger, records=100, ended=lambda: program.poll() is not None) as workers:
            killed = victims(workers)
            for process in killed:
                process.kill()
        assert program.wait(timeout=400) == 0, log.read_text()[-3000:]

    report = json.loads((tmp_path / "drain.json").read_text())
    arrived = own.arrived(queue)
    assert set(arrived) == ids
    assert own.held_by_backlog() == []
    assert (report["moved"], report["left"]) == ({queue: COUNT}, 0)
    assert report["lost_attempts"] == len(killed), "each was in the middle of one task"
    duplicates = arrived.total() - len(ids)
    assert report["repeated"] <= duplicates <= report["duplicates_possible"] < COUNT
    assert syphoned(ledger) == COUNT + report["repeated"]
    assert delivered(spark, own, ledger, tmp_path / "proof", queue) == (COUNT, COUNT, 0, duplicates)
    said = "".join(file.read_text(errors="replace") for file in (log, *(home / "work").rglob("stderr")))
    assert "drain task=0 attempt=0 begins" in said, "executors say how far they are"
    logged = "".join(file.read_text() for file in events.iterdir() if file.suffix != ".crc")
    assert "SparkListenerTaskEnd" in logged
    assert CANARY not in said + logged


def delivered(spark: SparkSession, own: Pair, ledger: Path, output: Path, queue: str) -> tuple[int, int, int, int]:
    """Return how many messages were sent, arrived, were lost, and came twice, as the ledger and the queues tell."""
    places = [Place.parse(queue)]
    proof = reconcile(spark, pair_reference=own.reference, ledger=str(ledger), places=places, output=str(output))
    return proof.totals.sent, proof.totals.delivered, proof.totals.lost, proof.totals.duplicates
