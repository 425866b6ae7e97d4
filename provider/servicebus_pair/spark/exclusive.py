"""What every program that sends asks of its Spark before it begins."""

from __future__ import annotations

from pyspark.sql import SparkSession

from servicebus_pair.core.errors import ConfigurationError

__all__ = ["check_no_speculation"]


def check_no_speculation(spark: SparkSession) -> None:
    """Refuse speculative execution. :raises ConfigurationError: it is on."""
    if spark.sparkContext.getConf().get("spark.speculation", "false").lower() == "true":
        raise ConfigurationError("spark.speculation is true: set it to false, a speculative task would send twice")
