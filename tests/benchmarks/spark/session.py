"""A local Spark session for benchmarks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

LOOPBACK_CONF: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
}
_CONF: Final = LOOPBACK_CONF | {
    "spark.speculation": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "8",
}


@contextmanager
def session(*, cores: int, heap: str = "640m") -> Iterator[SparkSession]:
    """Run Spark on ``cores`` cores.

    :param heap: of the JVM, which is both driver and executor.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{cores}]").appName("bench").config("spark.driver.memory", heap)
    for name, value in _CONF.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
