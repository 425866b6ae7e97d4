"""A standalone cluster of Spark as an operator sets it up: a master and workers, each a process of its own.

Nothing of this project is where they run: neither in their Python, which has what the project depends on and no
Airflow, nor in a variable of their environment. What executors know of it, they get with the program.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.spark.conftest import Pair
from tests.spark.submitting import INSTALLED, QUIET, configured, running
from tests.system.demo.ports import HOST, PortReservation
from tests.system.demo.processes import Processes

__all__ = ["SETTINGS", "Cluster", "python_without_us", "standalone"]

WORKERS = 2
SETTINGS = "pair.json"
ABSENT = ("servicebus_", "pyspark_servicebus", "airflow", "apache_airflow", "__editable__")
SCRUBBED = ("PYTHONPATH", "PAIR", "SPARK_", "PYSPARK_", "AIRFLOW")
START_SECONDS = 240.0  # a bound of what hangs
ON_IT = {
    # As on clusters with a distributed file system; nothing is there that could be asked.
    "spark.hadoop.fs.defaultFS": "hdfs://127.0.0.1:1",
    # Tasks begin when both executors are there.
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "240s",
}


@dataclass(frozen=True)
class Cluster:
    """A master and two workers with one core each.

    :param python: of drivers and executors.
    """

    master: str
    python: Path
    processes: Processes
    names: tuple[str, ...]

    @property
    def workers(self) -> list[int]:
        """The process ids of the workers, below which executors run."""
        members = [process.pid for name in self.names for process in self.processes.members(name)]
        return [member for member in members if os.getsid(member) == member]

    @property
    def environment(self) -> dict[str, str]:
        """What drivers and executors have in theirs: nothing of this project."""
        return environment(self.python)

    def submitted(
        self, pair: Pair, program: Path, given: Mapping[str, str], *, package: Path, log: Path, cwd: Path
    ) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """Submit a program with the package and the pair's settings; at the end nothing of the driver is left.

        :param cwd: the driver's folder, in which the settings are, as executors have them in theirs.
        """
        (cwd / SETTINGS).write_text(pair.file.read_text())
        conf = QUIET | ON_IT | {"spark.executor.memory": "512m"}
        command = [str(INSTALLED / "bin" / "spark-submit"), "--master", self.master, *configured(conf)]
        command += ["--py-files", str(package), "--files", SETTINGS, str(program)]
        command += [word for option in given.items() for word in option]
        return running(command, self.environment, log=log, cwd=cwd)


def python_without_us(folder: Path) -> Path:
    """Make a Python that has all that is installed here but this project and Airflow."""
    venv.create(folder)
    site = next(folder.glob("lib/*/site-packages"))
    for part in Path(next(place for place in sys.path if place.endswith("site-packages"))).iterdir():
        if not part.name.startswith(ABSENT):
            (site / part.name).symlink_to(part)
    return folder / "bin" / "python"


def environment(python: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(SCRUBBED)}
    return kept | {"SPARK_HOME": str(INSTALLED), "SPARK_LOCAL_IP": HOST, "PYSPARK_PYTHON": str(python)}


@contextmanager
def standalone(home: Path) -> Iterator[Cluster]:
    """Start a cluster; at the end nothing of it is left.

    :param home: a folder for its logs and for what executors leave.
    """
    processes = Processes(record=home / "pids.json", logs=home)
    ports = PortReservation()
    port = ports.next_free(26077)
    master = f"spark://{HOST}:{port}"
    daemons = {
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": QUIET["spark.driver.extraJavaOptions"],
        # An executor that is killed is replaced, however many were before.
        "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
    }
    python = python_without_us(home / "python")
    names = tuple(f"worker-{number}" for number in range(WORKERS))
    commands = {"master": ["master.Master", "--host", HOST, "--port", str(port)]} | {
        name: [
            "worker.Worker",
            "--host",
            HOST,
            "--cores",
            "1",
            "--memory",
            "1g",
            "--work-dir",
            str(home / name),
            master,
        ]
        for name in names
    }
    ready = "I have been elected leader"
    try:
        for name, (kind, *arguments) in commands.items():
            command = [str(INSTALLED / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
            command += ["--webui-port", str(ports.next_free(26080)), *arguments]
            processes.start(name, command, env=environment(python) | daemons, cwd=home)
            processes.wait_for_line(name, ready, after=0, seconds=START_SECONDS)
            ready = "Successfully registered with master"
        yield Cluster(master, python, processes, names)
    finally:
        processes.stop()
