"""Registers the data source in sessions where Spark does not discover it.

Spark discovers packages named ``pyspark_*`` that are installed in the driver's Python. A package that comes with
``--py-files`` is not installed, so such a program must register the data source itself.
"""

from __future__ import annotations

from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from servicebus_pair.spark.datasource.source import ServiceBusDataSource

__all__ = ["register"]

_ALREADY_EXISTS: Final = "DATA_SOURCE_ALREADY_EXISTS"


def register(spark: SparkSession) -> None:
    """Register the data source ``servicebus``, unless Spark has discovered it.

    :raises pyspark.errors.AnalysisException: Spark cannot load the data source.
    """
    # Spark 4.2 looks for a Python data source in the thread's active session, which only this PySpark call sets.
    spark.createDataFrame([], "nothing string")
    try:
        spark.dataSource.register(ServiceBusDataSource)
    except AnalysisException as error:
        if error.getCondition() != _ALREADY_EXISTS:
            raise
