"""A standalone Spark cluster: a master and two workers, each in its own process.

Its Python has the dependencies of this project, but neither the project nor Airflow, and its environment has no
settings: executors get everything with the submitted program.
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
from tests.spark.support.job_files import arguments
from tests.spark.support.spark_submit import CONF, INSTALLED, configured, running
from tests.system.demo.ports import HOST, PortReservation
from tests.system.demo.processes import Processes

WORKERS = 2
SETTINGS = "pair.json"
ABSENT = ("servicebus_", "pyspark_servicebus", "airflow", "apache_airflow", "__editable__")
SCRUBBED = ("PYTHONPATH", "PAIR", "SPARK_", "PYSPARK_", "AIRFLOW")
START_SECONDS = 240.0  # limits a hang
CLUSTER_CONF = {
    # As on clusters with a distributed file system, which is unreachable here.
    "spark.hadoop.fs.defaultFS": "hdfs://127.0.0.1:1",
    # Tasks wait for both executors.
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
        return environment(self.python)

    def submitted(
        self, pair: Pair, program: Path, given: Mapping[str, str], *, package: Path, log: Path, cwd: Path
    ) -> AbstractContextManager[subprocess.Popen[bytes]]:
        """Submit a program with the package and the pair's settings, and kill the driver at the end.

        :param cwd: working directory of the driver, to which the settings are written.
        """
        (cwd / SETTINGS).write_text(pair.file.read_text())
        conf = CONF | CLUSTER_CONF | {"spark.executor.memory": "512m"}
        command = [str(INSTALLED / "bin" / "spark-submit"), "--master", self.master, *configured(conf)]
        command += ["--py-files", str(package), "--files", SETTINGS, str(program)]
        command += arguments(given)
        return running(command, self.environment, log=log, cwd=cwd)


def create_python(folder: Path) -> Path:
    """Create a virtual environment with everything installed here, except this project and Airflow."""
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
def standalone(folder: Path) -> Iterator[Cluster]:
    """Start a cluster, and stop it at the end.

    :param folder: for logs and the files of executors.
    """
    processes = Processes(record=folder / "pids.json", logs=folder)
    ports = PortReservation()
    port = ports.next_free(26077)
    master = f"spark://{HOST}:{port}"
    daemons = {
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": CONF["spark.driver.extraJavaOptions"],
        # Replace killed executors without limit.
        "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
    }
    python = create_python(folder / "python")
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
            str(folder / name),
            master,
        ]
        for name in names
    }
    ready = "I have been elected leader"
    try:
        for name, (kind, *arguments) in commands.items():
            command = [str(INSTALLED / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}"]
            command += ["--webui-port", str(ports.next_free(26080)), *arguments]
            processes.start(name, command, env=environment(python) | daemons, cwd=folder)
            processes.wait_for_line(name, ready, after=0, seconds=START_SECONDS)
            ready = "Successfully registered with master"
        yield Cluster(master, python, processes, names)
    finally:
        processes.stop()
