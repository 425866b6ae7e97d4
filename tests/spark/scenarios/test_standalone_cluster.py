"""The jobs on a standalone cluster: they run unchanged, and survive kill -9 of an executor and of the driver.

The pure rules of the core classify each message: it has the copies that the ledger predicts, plus at most those that
were in flight, and not yet recorded, in a killed task.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from servicebus_pair.core.ledger.reconcile import Found, History, Location, Verdict, classify
from servicebus_pair.core.ledger.totals import Totals
from servicebus_pair.spark import jobs
from servicebus_pair.spark.datasource.write_task import PACED_BATCH_SECONDS
from tests.spark.conftest import CANARY, Pair
from tests.spark.support.job_files import read_json, read_summary
from tests.spark.support.own_backlog import own_backlog
from tests.spark.support.process_kill import executor_of, suspended_workers
from tests.spark.support.spark_submit import CONF, INSTALLED
from tests.spark.support.standalone_cluster import SETTINGS, Cluster, standalone
from tests.system.chaos.verdict import LedgerRecords, read_ledger
from tests.system.demo.layout import PROJECT

PAGE = PROJECT / "provider" / "docs" / "clusters.md"
JOBS = Path(jobs.__path__[0])
TASKS = 2  # run at once
ROWS, ROW_RATE = 320, 40.0  # eight seconds
ROWS_IN_FLIGHT = int(ROW_RATE / TASKS * PACED_BATCH_SECONDS)  # per task
MOVED, MOVE_RATE = 800, 80.0  # ten seconds
BATCH_SIZE = 20  # messages in flight per link to the destination
LOCK_DURATION = timedelta(seconds=20)  # delays the retry; a minute by default

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # s; limits a hang


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with standalone(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ZIP of the package, made as documented."""
    folder = tmp_path_factory.mktemp("package")
    done = bash(documented("package"), cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "servicebus_pair.zip"


def documented(mark: str) -> str:
    found = re.search(rf"<!-- run: {mark} -->\n```console\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert found is not None
    return found[1]


def bash(commands: str, *, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run commands with the Python and Spark of the tests first in the path."""
    conf = cwd / "conf"
    conf.mkdir(exist_ok=True)
    (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in CONF.items()))
    path = os.pathsep.join([str(Path(sys.executable).parent), str(INSTALLED / "bin"), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "SPARK_HOME": str(INSTALLED), "SPARK_CONF_DIR": str(conf), **variables}
    command = ["/bin/bash", "-e", "-c", commands]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@dataclass(frozen=True)
class Job:
    """A job to submit to the cluster.

    :param folder: working directory of the driver.
    """

    cluster: Cluster
    package: Path
    pair: Pair
    program: str
    options: Mapping[str, str]
    folder: Path

    @property
    def log(self) -> Path:
        return self.folder / "submit.log"

    def submitted(self, **more: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
        options = {**self.options, **{f"--{name}": value for name, value in more.items()}}
        return self.cluster.submitted(
            self.pair, JOBS / self.program, options, package=self.package, log=self.log, cwd=self.folder
        )

    def run_and_kill(self, victim: str, ledger: Path, *, rate: float) -> int:
        """Kill the driver or an executor during the job, and wait for its retry; return the number of killed tasks."""
        with self.submitted(rate=str(rate)) as process:
            killed = kill_during_tasks(victim, self.cluster, process, ledger)
            if victim == "executor":
                assert process.wait() == 0, self.log.read_text()[-3000:]
        if victim == "driver":
            with self.submitted() as retry:  # with the same run, as Airflow retries
                assert retry.wait() == 0, self.log.read_text()[-3000:]
        return killed


@pytest.mark.parametrize("victim", ["executor", "driver"])
def test_killed_publish_loses_nothing(victim: str, cluster: Cluster, package: Path, pair: Pair, tmp_path: Path):
    queue, ledger = pair.fresh_queue(), tmp_path / "ledger"
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

    job = Job(cluster, package, pair, "publish.py", given, tmp_path)
    killed = job.run_and_kill(victim, ledger, rate=ROW_RATE)

    assert {found.content.body for found in pair.peek(queue)} == {b"row %d" % number for number in range(ROWS)}
    found = classified(ledger, pair, queue)
    assert len(found.verdicts) == ROWS, "attempts use the same ids"
    manifest = read_json(tmp_path / "manifest.json")
    assert manifest["entities"][queue]["primary"] == ROWS
    assert found.totals.duplicates_predicted >= ROWS_IN_FLIGHT, "the killed task had sent a batch"
    found.check(ROWS, in_flight=killed * ROWS_IN_FLIGHT)
    assert CANARY not in job.log.read_text()


@pytest.mark.parametrize("victim", ["executor", "driver"])
def test_killed_drain_loses_nothing(victim: str, cluster: Cluster, package: Path, pair: Pair, tmp_path: Path):
    own = own_backlog(pair, tmp_path, syphon_batch_size=BATCH_SIZE)
    queue, ledger = own.fresh_queue(), tmp_path / "ledger"
    own.set_lock_duration(LOCK_DURATION)
    ids = own.divert(ledger, queue, MOVED)
    given = {
        "--pair": f"file:{SETTINGS}",
        "--ledger": str(ledger),
        "--run": "drain",
        "--report": str(tmp_path / "drain.json"),
    }

    killed = Job(cluster, package, own, "drain.py", given, tmp_path).run_and_kill(victim, ledger, rate=MOVE_RATE)

    report = read_json(tmp_path / "drain.json")
    assert (report["left"], report["lost_attempts"]) == (0, 1 if victim == "executor" else 0)
    assert own.peek_backlog() == []
    found = classified(ledger, own, queue)
    assert set(found.verdicts) == ids
    found.check(MOVED, in_flight=killed * BATCH_SIZE)
    if victim == "executor":
        assert report["moved"] == {queue: MOVED}
        assert report["repeated"] == found.totals.duplicates_predicted
        assert found.totals.duplicates <= report["duplicates_possible"]


def test_documented_example_and_jobs_run_on_a_cluster(cluster: Cluster, package: Path, pair: Pair, tmp_path: Path):
    command = [str(cluster.python), "-c", "import servicebus_pair"]
    done = subprocess.run(command, env=cluster.environment, capture_output=True, text=True, check=False)
    assert "No module named 'servicebus_pair'" in done.stderr, "executors get it from the ZIP only"
    own = own_backlog(pair, tmp_path)
    queue, ledger = own.fresh_queue(), tmp_path / "ledger"
    ids = own.divert(ledger, queue, 30)
    shutil.copy(own.file, tmp_path / SETTINGS)
    shutil.copy(package, tmp_path)

    def run(program: str, **options: str) -> None:
        given = {"--pair": f"file:{SETTINGS}"} | {f"--{name}": value for name, value in options.items()}
        with Job(cluster, package, own, program, given, tmp_path).submitted() as process:
            assert process.wait() == 0, (tmp_path / "submit.log").read_text()[-3000:]

    run("profile_backlog.py", output=str(tmp_path / "profile"))
    assert read_summary(tmp_path / "profile")["messages"] == 30
    commands = documented("standalone").replace("spark://master:7077", cluster.master).replace("/shared", str(tmp_path))
    done = bash(commands, cwd=tmp_path, PYSPARK_PYTHON=str(cluster.python))
    assert done.returncode == 0, done.stderr[-3000:]
    assert "drained 30 messages" in done.stdout
    run("reconcile.py", ledger=str(ledger), entities=queue, output=str(tmp_path / "proof"))
    totals = read_summary(tmp_path / "proof")["totals"]
    assert (totals["delivered"], totals["syphoned"], totals["lost"], totals["duplicates"]) == (30, 30, 0, 0)
    run("cost.py", ledger=str(ledger), metered=str(tmp_path / "drain.json"), output=str(tmp_path / "cost"))
    assert read_summary(tmp_path / "cost")["job"] == "cost"
    assert set(own.arrived(queue)) == ids
    own.divert(ledger, queue, 5)
    done = bash(documented("local"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "drained 5 messages" in done.stdout


def kill_during_tasks(victim: str, cluster: Cluster, driver: subprocess.Popen[bytes], ledger: Path) -> int:
    """Kill the driver or an executor while tasks run; return the number of killed tasks once they have ended."""
    with suspended_workers(
        cluster.workers, ledger, records=ROWS_IN_FLIGHT, ended=lambda: driver.poll() is not None
    ) as workers:
        lost = workers if victim == "driver" else workers[:1]
        (psutil.Process(driver.pid) if victim == "driver" else executor_of(workers[0])).kill()
    # Python workers run until they notice that their executor is gone, and may send until then.
    assert psutil.wait_procs(lost, timeout=240)[1] == []
    return TASKS if victim == "driver" else 1


@dataclass(frozen=True)
class Classified:
    """Verdicts of all messages in the ledger or a queue.

    :param unrecorded: copies without a ledger record, by message id.
    """

    verdicts: dict[str, Verdict]
    unrecorded: dict[str, int]

    @property
    def totals(self) -> Totals:
        return Totals.of_all(self.verdicts.values())

    def check(self, count: int, *, in_flight: int) -> None:
        """Check that nothing is lost, and that all unrecorded copies were in flight."""
        totals = self.totals
        assert (totals.messages, totals.delivered, totals.lost, totals.unrecorded) == (count, count, 0, 0)
        assert set(self.unrecorded.values()) <= {0, 1}
        assert sum(self.unrecorded.values()) <= in_flight
        assert totals.duplicates == totals.duplicates_predicted + sum(self.unrecorded.values())


def classified(ledger: Path, pair: Pair, queue: str) -> Classified:
    """Apply the rules of the core; each copy should have a record."""
    known = {message_id: each for (_, message_id), each in read_ledger(ledger).items()}
    drained = any(each.syphoned for each in known.values())
    copies = Counter(found.key[1] for found in pair.peek(queue))
    recorded = Counter({name: len(each.syphoned if drained else each.sent) for name, each in known.items()})
    verdicts = {}
    for name in copies | recorded:
        of_message, found = known.get(name, LedgerRecords()), (Found(queue, Location.ACTIVE, copies[name]),)
        history = History(name, queue, tuple(of_message.sent), tuple(of_message.syphoned), found)
        verdicts[name] = classify(history, receiving_entities=[queue])
    return Classified(verdicts, {name: copies[name] - recorded[name] for name in verdicts})
