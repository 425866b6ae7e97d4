"""Spark in this machine, as the example DAGs submit to it.

===================================  ====================================================================
environment variable
===================================  ====================================================================
``SERVICEBUS_PAIR_SPARK_CONN_ID``    the connection of Spark, ``spark_default`` if not set
``SERVICEBUS_PAIR_SPARK_CONF``       more of Spark's own settings, as a JSON object; they win
``SERVICEBUS_PAIR_REFERENCE``        where a job finds the pair's settings: ``env:NAME`` or ``file:PATH``;
                                     ``env:AIRFLOW_CONN_{CONN_ID}`` if not set
===================================  ====================================================================
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

__all__ = ["package_folder", "pair_reference", "submit"]


def package_folder(package: str) -> Path:
    """Return where ``package`` is installed, without importing it: a DAG file is parsed every few seconds."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"package {package!r} is not installed: these DAGs need the extra 'spark'")
    return Path(spec.submodule_search_locations[0])


def pair_reference(conn_id: str) -> str:
    """Return where a job finds the settings of the pair, which it reads itself: no secret is handed over."""
    return os.environ.get("SERVICEBUS_PAIR_REFERENCE", f"env:AIRFLOW_CONN_{conn_id.upper()}")


# [START local_spark]
def submit(task_id: str, application: Path, arguments: list[str], **options: Any) -> SparkSubmitOperator:
    """Return a task that runs ``application`` with the installed pyspark.

    ``arguments`` are templates and shown in the UI: they name the environment variable of a
    connection, never its content. The process inherits the environment. ``options`` are those of any task.
    """
    home = package_folder("pyspark")
    return SparkSubmitOperator(
        task_id=task_id,
        conn_id=os.environ.get("SERVICEBUS_PAIR_SPARK_CONN_ID", "spark_default"),
        application=str(application),
        application_args=arguments,
        spark_binary=str(home / "bin" / "spark-submit"),
        # Without PYSPARK_PYTHON another Python of the machine would run silently.
        env_vars={"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable},
        conf={
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false",
            # Short jobs: code is compiled fast rather than well, which saves several seconds at the start.
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
            # The default, 200, makes hundreds of tasks that have next to nothing to do, of each shuffle.
            "spark.sql.shuffle.partitions": "8",
            # A task that runs twice sends twice.
            "spark.speculation": "false",
            **json.loads(os.environ.get("SERVICEBUS_PAIR_SPARK_CONF", "{}")),
        },
        **options,
    )


# [END local_spark]
