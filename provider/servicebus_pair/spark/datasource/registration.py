"""Registers the data source in sessions where Spark does not discover it.

Spark discovers packages named ``pyspark_*`` that are installed in the driver's Python. A package that comes with
``--py-files`` is not installed, so such a program must register the data source itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.datasource.source import ServiceBusDataSource

_ALREADY_EXISTS: Final = "DATA_SOURCE_ALREADY_EXISTS"
_DEFAULT_PYTHON: Final = "python3"
_IS_INSTALLED: Final = "import importlib.util, sys; sys.exit(importlib.util.find_spec('servicebus_pair') is None)"


def register(spark: SparkSession) -> None:
    """Register the data source ``servicebus``, unless Spark has discovered it.

    :raises ConfigurationError: Spark would load the data source with a Python in which it is not installed.
    :raises pyspark.errors.AnalysisException: Spark cannot load the data source.
    """
    if (spark.conf.get("spark.master", "") or "").startswith("local"):
        check_python(os.environ.get("PYSPARK_PYTHON", _DEFAULT_PYTHON))
    # Spark 4.2 looks for a Python data source in the thread's active session, which only this PySpark call sets.
    spark.createDataFrame([], "nothing string")
    try:
        spark.dataSource.register(ServiceBusDataSource)
    except AnalysisException as error:
        if error.getCondition() != _ALREADY_EXISTS:
            raise


def check_python(name: str) -> None:
    """Check that the Python that Spark starts on this machine has this package.

    Outside an active environment Spark starts another ``python3`` than the one that runs this program.

    :param name: as in ``PYSPARK_PYTHON``: a path, or a name on the ``PATH``.
    :raises ConfigurationError: it has not.
    """
    python = shutil.which(name)
    if python is None or Path(python).parent == Path(sys.executable).parent:
        return
    # What runs is the user's own choice of Python, which Spark starts as well.
    if subprocess.run([python, "-c", _IS_INSTALLED], check=False, capture_output=True).returncode:  # noqa: S603
        raise ConfigurationError(
            f"Spark runs data sources with {python}, in which this package is not installed: set the environment "
            f"variable PYSPARK_PYTHON to {sys.executable} before the session starts, or activate the environment"
        )
