"""Submits the example DAGs' Spark jobs, by default to Spark on the worker's machine.

===================================  ====================================================================
environment variable
===================================  ====================================================================
``SERVICEBUS_PAIR_SPARK_CONN_ID``    id of the Spark connection; default ``spark_default``
``SERVICEBUS_PAIR_SPARK_CONF``       additional Spark settings, as a JSON object; they take precedence
``SERVICEBUS_PAIR_REFERENCE``        where a job reads the pair's settings: ``env:NAME`` or ``file:PATH``;
                                     default ``env:AIRFLOW_CONN_{CONN_ID}``
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
    """Return the folder of an installed package without importing it, because DAG files are parsed often."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"package {package!r} is not installed: these DAGs need the extra 'spark'")
    return Path(spec.submodule_search_locations[0])


def pair_reference(conn_id: str) -> str:
    """Return the place from which a job reads the pair's settings; no secret is passed to the job."""
    return os.environ.get("SERVICEBUS_PAIR_REFERENCE", f"env:AIRFLOW_CONN_{conn_id.upper()}")


# [START local_spark]
def submit(task_id: str, application: Path, arguments: list[str], **options: Any) -> SparkSubmitOperator:
    """Return a task that runs ``application`` with the installed pyspark.

    ``arguments`` are templates and appear in the UI, so they name the environment variable of a connection and never
    contain its value. The process inherits the environment. ``options`` are passed to the operator.
    """
    spark_home = package_folder("pyspark")
    return SparkSubmitOperator(
        task_id=task_id,
        conn_id=os.environ.get("SERVICEBUS_PAIR_SPARK_CONN_ID", "spark_default"),
        application=str(application),
        application_args=arguments,
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
            **json.loads(os.environ.get("SERVICEBUS_PAIR_SPARK_CONF", "{}")),
        },
        **options,
    )


# [END local_spark]
