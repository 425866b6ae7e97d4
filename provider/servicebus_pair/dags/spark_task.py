"""Tasks that submit a Spark job, by default to Spark on the worker's machine, and what they need."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow.sdk import BaseHook, task

from servicebus_pair.airflow_runtime.airflow_version import AirflowFailException, AirflowNotFoundException

if TYPE_CHECKING:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

__all__ = ["JOBS", "SparkJobs"]

JOBS: Final = Path(__file__).parents[1] / "spark" / "jobs"
_PACKAGES: Final = ("airflow.providers.apache.spark", "pyspark", "pyarrow")


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkJobs:
    """Submits the Spark jobs of one pair.

    :param servicebus_pair_conn_id: the connection of the pair.
    :param spark_conn_id: the connection to Spark.
    :param conf: further Spark settings; they take precedence.
    :param pair_reference: where a job reads the pair's settings, ``env:NAME`` or ``file:PATH``; by default the
        environment variable of the connection.
    """

    servicebus_pair_conn_id: str
    spark_conn_id: str = "spark_default"
    conf: Mapping[str, str] = field(default_factory=dict)
    pair_reference: str | None = None

    @property
    def pair(self) -> str:
        """Where a job reads the pair's settings; no secret is passed to it."""
        default = f"env:AIRFLOW_CONN_{self.servicebus_pair_conn_id.upper()}"
        return default if self.pair_reference is None else self.pair_reference

    def requirements(self) -> Any:
        """Return a task that fails, and says what to do, if Spark or its connection is missing."""
        spark_conn_id = self.spark_conn_id

        @task
        def requirements() -> None:
            """Fail at once, with what to do, if a Spark job cannot run here."""
            missing = find_missing(spark_conn_id)
            if missing:
                raise AirflowFailException(f"Spark cannot run here: {'; '.join(missing)}")

        return requirements()

    # [START spark_submit]
    def submit(self, task_id: str, application: Path, arguments: Sequence[str]) -> SparkSubmitOperator:
        """Return a task that runs ``application`` with the installed pyspark.

        ``arguments`` are templates and appear in the UI, so they name the environment variable of a connection and
        never contain its value. The process inherits the environment.
        """
        from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

        spark_home = _folder("pyspark")
        return SparkSubmitOperator(
            task_id=task_id,
            conn_id=self.spark_conn_id,
            application=str(application),
            application_args=["--pair", self.pair, *arguments],
            spark_binary=str(spark_home / "bin" / "spark-submit"),
            # Without PYSPARK_PYTHON, Spark would silently use another Python of the machine.
            env_vars={"SPARK_HOME": str(spark_home), "PYSPARK_PYTHON": sys.executable},
            conf={
                "spark.driver.host": "127.0.0.1",
                "spark.driver.bindAddress": "127.0.0.1",
                "spark.ui.enabled": "false",
                # The jobs are short: the quick compiler saves several seconds at startup.
                "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
                # The default of 200 would split each small shuffle into hundreds of nearly empty tasks.
                "spark.sql.shuffle.partitions": "8",
                # A speculative copy of a task would send its messages twice.
                "spark.speculation": "false",
                **self.conf,
            },
        )

    # [END spark_submit]

    @staticmethod
    def installed() -> bool:
        """Return whether the packages of the extra ``spark`` are installed."""
        return all(map(_is_installed, _PACKAGES))


def find_missing(spark_conn_id: str) -> list[str]:
    """Return what a Spark job lacks on this machine, each with its remedy."""
    missing = [
        f"package {name} is not installed: install the extra 'spark-provider'"
        for name in _PACKAGES
        if not _is_installed(name)
    ]
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        missing.append("there is no Java: install Java 17 or later, or set JAVA_HOME")
    try:
        BaseHook.get_connection(spark_conn_id)
    except AirflowNotFoundException:
        missing.append(
            f"there is no connection {spark_conn_id!r}: add it, such as by `airflow connections add {spark_conn_id} "
            "--conn-type spark --conn-host 'local[2]'`, or name another"
        )
    return missing


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # its parent is missing
        return False


def _folder(package: str) -> Path:
    """Return the folder of an installed package without importing it, because DAG files are parsed often."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"package {package!r} is not installed: install the extra 'spark-provider'")
    return Path(spec.submodule_search_locations[0])
