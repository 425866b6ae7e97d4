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

from tests.spark import conftest
from tests.spark.conftest import Pair
from tests.spark.support.job_files import arguments

REFERENCE = "env:PAIR_OF_THE_TEST"
INSTALLED = Path(pyspark.__file__).parent
CONF = conftest.CONF | {
    "spark.executor.extraJavaOptions": conftest.CONF["spark.driver.extraJavaOptions"],
    "spark.sql.shuffle.partitions": "2",
}


@contextmanager
def submitted(
    pair: Pair,
    program: Path,
    options: Mapping[str, str],
    *more: str,
    log: Path,
) -> Iterator[subprocess.Popen[bytes]]:
    """Submit a program, and kill what is left of it at the end.

    :param options: its arguments, followed by ``more``.
    """
    command = [str(INSTALLED / "bin" / "spark-submit"), "--master", "local[2]", *configured(CONF)]
    command += [str(program), *arguments(options), *more]
    environment = {
        **os.environ,
        "SPARK_HOME": str(INSTALLED),
        "PYSPARK_PYTHON": sys.executable,
        REFERENCE.partition(":")[2]: pair.file.read_text(),
    }
    with running(command, environment, log=log) as process:
        yield process


def configured(conf: Mapping[str, str]) -> list[str]:
    """Return the ``--conf`` options of spark-submit."""
    return [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]


@contextmanager
def running(
    command: Sequence[str], environment: Mapping[str, str], *, log: Path, cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program that appends to a log, and kill its process group at the end."""
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
