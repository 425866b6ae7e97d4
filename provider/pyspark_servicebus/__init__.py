"""Spark finds the data source ``servicebus`` by this module's name; all of it is in ``servicebus_pair.spark``.

Spark imports every top-level module called ``pyspark_*`` and registers its ``DefaultSource``.
"""

from __future__ import annotations

from servicebus_pair.spark.source import ServiceBusDataSource as DefaultSource

__all__ = ["DefaultSource"]
