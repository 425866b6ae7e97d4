"""Programs, started by spark-submit as SparkSubmitOperator does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark

from tests.spark.conftest import Pair

__all__ = ["INSTALLED", "QUIET", "REFERENCE", "configured", "home_of_its_own", "running", "submitted"]

REFERENCE = "env:PAIR_OF_THE_TEST"
INSTALLED = Path(pyspark.__file__).parent
QUIET = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # Short programs on few cores spend most of their time in the optimising compiler.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
}


def home_of_its_own(folder: Path) -> Path:
    """Make a home of Spark in which the executors of a cluster may leave their files."""
    folder.mkdir()
    for part in INSTALLED.iterdir():
        if part.name != "work":
            (folder / part.name).symlink_to(part)
    return folder


@contextmanager
def submitted(
    pair: Pair,
    program: Path,
    given: Mapping[str, str],
    *more: str,
    log: Path,
    master: str = "local[2]",
    conf: Mapping[str, str] | None = None,
    home: Path | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program; at the end nothing of it is left.

    :param given: its arguments, ``more`` after them.
    :param home: where Spark is, and executors of a cluster work; where it is installed, when not given.
    """
    spark = INSTALLED if home is None else home
    command = [str(spark / "bin" / "spark-submit"), "--master", master, *configured({**QUIET, **(conf or {})})]
    command += [str(program), *(word for option in given.items() for word in option), *more]
    environment = {
        **os.environ,
        "SPARK_HOME": str(spark),
        "PYSPARK_PYTHON": sys.executable,
        REFERENCE.partition(":")[2]: pair.file.read_text(),
    }
    with running(command, environment, log=log) as process:
        yield process


def configured(conf: Mapping[str, str]) -> list[str]:
    """Return options of spark-submit that set these."""
    return [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str], *, log: Path, cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program that adds to a log; at the end nothing of it is left."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=environment, cwd=cwd, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
