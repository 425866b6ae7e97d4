"""A drain by spark-submit whose executors are killed: Spark tries their tasks again, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from servicebus_pair.spark import Place, reconcile
from tests.spark.conftest import CANARY, Pair
from tests.spark.diverting import own_backlog
from tests.spark.recorded import syphoned, wait_until
from tests.spark.submitting import REFERENCE, home_of_its_own, submitted
from tests.system.demo.layout import PROJECT

COUNT = 3000
JOB = PROJECT / "provider" / "servicebus_pair" / "spark" / "jobs" / "drain.py"


def python_workers(program: subprocess.Popen[bytes]) -> list[int]:
    """Return the ids of the Python workers of a local Spark: what their daemon has forked."""
    started = psutil.Process(program.pid).children(recursive=True)
    daemons = {process.pid for process in started if "pyspark.daemon" in words_of(process)}
    return [process.pid for process in started if process.ppid() in daemons]


def executors(program: subprocess.Popen[bytes]) -> list[int]:
    """Return the id of one executor, the Java process whose Python workers end with it."""
    started = psutil.Process(program.pid).children(recursive=True)
    return [process.pid for process in started if any("ExecutorBackend" in word for word in words_of(process))][:1]


def words_of(process: psutil.Process) -> list[str]:
    """Return the command line of a process; none of one that has ended."""
    try:
        return process.cmdline()
    except psutil.Error:
        return []


KILLED: dict[str, tuple[str, Callable[[subprocess.Popen[bytes]], list[int]]]] = {
    "python-worker": ("local[2,4]", python_workers),
    "executor": ("local-cluster[2,1,1024]", executors),
}


@pytest.mark.slow
@pytest.mark.timeout(240)  # what the killed process held is locked for a minute
@pytest.mark.parametrize("what", KILLED)
def test_what_is_killed_is_tried_again_and_nothing_is_lost(what: str, spark: SparkSession, pair: Pair, tmp_path: Path):
    master, victims = KILLED[what]
    own = own_backlog(pair, tmp_path, f"own-{uuid.uuid4().hex[:8]}")
    queue, ledger, events, log = own.fresh_queue(), tmp_path / "ledger", tmp_path / "events", tmp_path / "submit.log"
    ids = own.divert(ledger, queue, COUNT)
    events.mkdir()
    given = {
        "--pair": REFERENCE,
        "--ledger": str(ledger),
        "--run": "home",
        "--report": str(tmp_path / "drain.json"),
        "--rate": "500",
    }
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    home = home_of_its_own(tmp_path / "spark")
    with submitted(own, JOB, given, log=log, master=master, conf=conf, home=home) as program:
        wait_until(lambda: syphoned(ledger) >= COUNT // 3, ended=lambda: program.poll() is not None)
        killed = victims(program)
        for process in killed:
            os.kill(process, signal.SIGKILL)
        assert killed
        assert program.wait(timeout=200) == 0, log.read_text()[-3000:]

    report = json.loads((tmp_path / "drain.json").read_text())
    arrived = own.arrived(queue)
    assert set(arrived) == ids
    assert own.held_by_backlog() == []
    assert (report["moved"], report["left"]) == ({queue: COUNT}, 0)
    assert report["lost_attempts"] in {1, 2}, "one of the tasks may have had less to do, and have ended"
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
