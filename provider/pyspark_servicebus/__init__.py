"""Lets Spark discover the data source ``servicebus``, which is implemented in ``servicebus_pair.spark``.

Spark imports every top-level package named ``pyspark_*`` and registers its ``DefaultSource``.
"""

from __future__ import annotations

from servicebus_pair.spark.datasource.source import ServiceBusDataSource as DefaultSource

__all__ = ["DefaultSource"]
