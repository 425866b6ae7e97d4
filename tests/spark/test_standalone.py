"""The jobs on a standalone cluster: they run unchanged, and survive kill -9 of an executor and of the driver.

Each message is judged by the pure rules of the core: its copies are those that the ledger's records predict, but for
what was under way, without a record yet, in a task that was killed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from servicebus_pair.core.events import Route
from servicebus_pair.core.lanes import most_lanes
from servicebus_pair.core.reconcile import Found, History, Location, Sent, Syphoned, Totals, Verdict, judge
from servicebus_pair.spark import jobs
from servicebus_pair.spark.pacing import WINDOW_SECONDS
from tests.spark.conftest import CANARY, Pair
from tests.spark.diverting import own_backlog
from tests.spark.killing import caught_at_work, hosting
from tests.spark.recorded import records
from tests.spark.standalone import SETTINGS, Cluster, standalone
from tests.spark.submitting import INSTALLED, QUIET
from tests.system.demo.layout import PROJECT

PAGE = PROJECT / "provider" / "docs" / "clusters.md"
JOBS = Path(jobs.__path__[0])
TASKS = 2  # at a time
ROWS, ROW_RATE = 320, 40.0  # eight seconds
WINDOW = int(ROW_RATE / TASKS * WINDOW_SECONDS)  # so many rows of a task are under way at a time
MOVED, MOVE_RATE = 800, 80.0  # ten seconds
HAND = 20  # so many messages of one backlog queue are under way at a time, over each lane to the destination
LOCKED = timedelta(seconds=20)  # so long what is killed with them stays locked: a minute, in a real backlog

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # a bound of what hangs


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ZIP that the page of the clusters shows how to make."""
    folder = tmp_path_factory.mktemp("package")
    done = bash(shown("package"), cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "servicebus_pair.zip"


def shown(mark: str) -> str:
    """Return the commands that the page of the clusters shows under a mark."""
    found = re.search(rf"<!-- run: {mark} -->\n```console\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert found is not None
    return found[1]


def bash(commands: str, *, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Do what is shown, with the Python and the Spark of the tests first in the path."""
    conf = cwd / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in QUIET.items()))
    path = os.pathsep.join([str(Path(sys.executable).parent), str(INSTALLED / "bin"), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "SPARK_HOME": str(INSTALLED), "SPARK_CONF_DIR": str(conf), **variables}
    command = ["/bin/bash", "-e", "-c", commands]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def victims(victim: str, driver: int, workers: list[psutil.Process]) -> list[psutil.Process]:
    return [psutil.Process(driver)] if victim == "driver" else [hosting(workers[0])]


@pytest.mark.parametrize("victim", ["executor", "driver"])
def test_a_publish_that_is_killed_loses_nothing(
    victim: str, cluster: Cluster, package: Path, pair: Pair, tmp_path: Path
):
    queue, ledger, log = pair.fresh_queue(), tmp_path / "ledger", tmp_path / "submit.log"
    table = tmp_path / "table.csv"
    table.write_text("body\n" + "".join(f"row {number}\n" for number in range(ROWS)))
    given = {
        "--pair": f"file:{SETTINGS}",
        "--table": table.as_uri(),
        "--entity": queue,
        "--ledger": str(ledger),
        "--run": "monday",
        "--manifest": str(tmp_path / "manifest.json"),
    }

    def submitted(**more: str) -> Any:
        paced = given | {f"--{name}": value for name, value in more.items()}
        return cluster.submitted(pair, JOBS / "publish.py", paced, package=package, log=log, cwd=tmp_path)

    with submitted(rate=str(ROW_RATE)) as program:
        killed = killed_at_work(victim, cluster, program, ledger)
        if victim == "executor":
            assert program.wait() == 0, log.read_text()[-3000:]
    if victim == "driver":
        with submitted() as again:  # with the same run, as Airflow tries again
            assert again.wait() == 0, log.read_text()[-3000:]

    assert {found.content.body for found in pair.held(queue)} == {b"row %d" % number for number in range(ROWS)}
    found = judged(ledger, pair, queue)
    assert len(found.verdicts) == ROWS, "each row has one id, in whichever attempt it was sent"
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["entities"][queue]["primary"] == ROWS
    assert found.totals.duplicates_predicted >= WINDOW, "the killed task had sent them"
    found.check(ROWS, under_way=killed * WINDOW)
    assert CANARY not in log.read_text()


@pytest.mark.parametrize("victim", ["executor", "driver"])
def test_a_drain_that_is_killed_loses_nothing(victim: str, cluster: Cluster, package: Path, pair: Pair, tmp_path: Path):
    own = own_backlog(pair, tmp_path, f"own-{uuid.uuid4().hex[:8]}", syphon_batch_size=HAND)
    queue, ledger, log = own.fresh_queue(), tmp_path / "ledger", tmp_path / "submit.log"
    own.lock_for(LOCKED)
    ids = own.divert(ledger, queue, MOVED)
    given = {
        "--pair": f"file:{SETTINGS}",
        "--ledger": str(ledger),
        "--run": "home",
        "--report": str(tmp_path / "drain.json"),
    }

    def submitted(**more: str) -> Any:
        paced = given | {f"--{name}": value for name, value in more.items()}
        return cluster.submitted(own, JOBS / "drain.py", paced, package=package, log=log, cwd=tmp_path)

    with submitted(rate=str(MOVE_RATE)) as program:
        killed = killed_at_work(victim, cluster, program, ledger)
        if victim == "executor":
            assert program.wait() == 0, log.read_text()[-3000:]
    if victim == "driver":
        with submitted() as again:
            assert again.wait() == 0, log.read_text()[-3000:]

    report = json.loads((tmp_path / "drain.json").read_text())
    assert (report["left"], report["lost_attempts"]) == (0, 1 if victim == "executor" else 0)
    assert own.held_by_backlog() == []
    found = judged(ledger, own, queue)
    assert set(found.verdicts) == ids
    found.check(MOVED, under_way=killed * HAND * most_lanes(1))
    if victim == "executor":
        assert report["moved"] == {queue: MOVED}
        assert report["repeated"] == found.totals.duplicates_predicted
        assert found.totals.duplicates <= report["duplicates_possible"]


def test_what_is_shown_runs_and_the_other_jobs_do_too(cluster: Cluster, package: Path, pair: Pair, tmp_path: Path):
    asking = [str(cluster.python), "-c", "import servicebus_pair"]
    asked = subprocess.run(asking, env=cluster.environment, capture_output=True, text=True, check=False)
    assert "No module named 'servicebus_pair'" in asked.stderr, "executors have it from the ZIP alone"
    own = own_backlog(pair, tmp_path, f"own-{uuid.uuid4().hex[:8]}")
    queue, ledger = own.fresh_queue(), tmp_path / "ledger"
    ids = own.divert(ledger, queue, 30)
    shutil.copy(own.file, tmp_path / SETTINGS)
    shutil.copy(package, tmp_path)

    def run(job: str, **given: str) -> None:
        arguments = {"--pair": f"file:{SETTINGS}"} | {f"--{name}": value for name, value in given.items()}
        log = tmp_path / f"{job}.log"
        with cluster.submitted(own, JOBS / job, arguments, package=package, log=log, cwd=tmp_path) as program:
            assert program.wait() == 0, log.read_text()[-3000:]

    run("profile_backlog.py", output=str(tmp_path / "profile"))
    assert summary(tmp_path / "profile")["messages"] == 30
    shown_here = shown("standalone").replace("spark://master:7077", cluster.master).replace("/shared", str(tmp_path))
    done = bash(shown_here, cwd=tmp_path, PYSPARK_PYTHON=str(cluster.python))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "drained 30 messages" in done.stdout
    run("reconcile.py", ledger=str(ledger), entities=queue, output=str(tmp_path / "proof"))
    totals = summary(tmp_path / "proof")["totals"]
    assert (totals["delivered"], totals["syphoned"], totals["lost"], totals["duplicates"]) == (30, 30, 0, 0)
    run("cost.py", ledger=str(ledger), metered=str(tmp_path / "drain.json"), output=str(tmp_path / "cost"))
    assert summary(tmp_path / "cost")["job"] == "cost"
    assert set(own.arrived(queue)) == ids
    own.divert(ledger, queue, 5)
    done = bash(shown("local"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "drained 5 messages" in done.stdout


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return found


def killed_at_work(victim: str, cluster: Cluster, program: subprocess.Popen[bytes], ledger: Path) -> int:
    """Kill the driver, or an executor, in the middle of tasks; return of how many, once all of these have ended."""
    with caught_at_work(cluster.workers, ledger, records=WINDOW, ended=lambda: program.poll() is not None) as workers:
        tasks = TASKS if victim == "driver" else 1
        for process in victims(victim, program.pid, workers):
            process.kill()
        lost = workers if victim == "driver" else workers[:1]
    # Their Python goes on until it finds its executor gone; then nobody of the first attempt sends any more.
    assert psutil.wait_procs(lost, timeout=240)[1] == []
    return tasks


@dataclass(frozen=True)
class Judged:
    """What became of each message that the ledger or a queue knows.

    :param unrecorded: copies beyond those that records tell of, by message.
    """

    verdicts: dict[str, Verdict]
    unrecorded: dict[str, int]

    @property
    def totals(self) -> Totals:
        return Totals.of_all(self.verdicts.values())

    def check(self, count: int, *, under_way: int) -> None:
        """Nothing is lost, and each message has as many copies as its records say, but for those under way."""
        totals = self.totals
        assert (totals.messages, totals.delivered, totals.lost, totals.unrecorded) == (count, count, 0, 0)
        assert set(self.unrecorded.values()) <= {0, 1}
        assert sum(self.unrecorded.values()) <= under_way
        assert totals.duplicates == totals.duplicates_predicted + sum(self.unrecorded.values())


def judged(ledger: Path, pair: Pair, queue: str) -> Judged:
    """Judge by the rules of the core; each copy has a record, of its moving if it was moved."""
    kinds: dict[str, list[dict[str, Any]]] = {"sent": [], "syphoned": []}
    for record in records(ledger):
        kinds[record["kind"]].append(record)
    copies = Counter(found.key[1] for found in pair.held(queue))
    told = Counter(record["id"] for record in kinds["syphoned"] or kinds["sent"])
    sent, syphoned = defaultdict(list), defaultdict(list)
    for record in kinds["sent"]:
        sent[record["id"]].append(Sent(Route(record["route"]), record["at"], record["queue"], record["run"]))
    for record in kinds["syphoned"]:
        syphoned[record["id"]].append(Syphoned(record["at"], record["queue"]))
    histories = (
        History(each, queue, tuple(sent[each]), tuple(syphoned[each]), (Found(queue, Location.ACTIVE, copies[each]),))
        for each in copies | told
    )
    verdicts = {history.message_id: judge(history, places=[queue]) for history in histories}
    return Judged(verdicts, {each: copies[each] - told[each] for each in verdicts})
