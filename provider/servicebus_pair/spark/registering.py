"""Making the data source known by its name where Spark does not find it by itself.

Spark imports what is installed under ``pyspark_*`` in the driver's Python. What comes with ``--py-files`` is not
installed, so a program that brings the package along registers the data source in its session.
"""

from __future__ import annotations

from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from servicebus_pair.spark.source import ServiceBusDataSource

__all__ = ["register"]

_KNOWN: Final = "DATA_SOURCE_ALREADY_EXISTS"


def register(spark: SparkSession) -> None:
    """Have ``spark`` find the data source ``servicebus``; what it has found by itself stays.

    :raises pyspark.errors.AnalysisException: Spark cannot load it, and says why.
    """
    # Spark 4.2 looks for a Python data source in the thread's active session, which of PySpark only this call sets.
    spark.createDataFrame([], "nothing string")
    try:
        spark.dataSource.register(ServiceBusDataSource)
    except AnalysisException as error:
        if error.getCondition() != _KNOWN:
            raise
