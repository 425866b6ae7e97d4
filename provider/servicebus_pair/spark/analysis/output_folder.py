"""The output folder of a job: Parquet tables, ``report.html`` and ``summary.json``."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from servicebus_pair.core.spool import SHARED_MODE, open_storage
from servicebus_pair.spark.base.arrow_schema import RowSchema
from servicebus_pair.spark.base.shared_paths import shared_location, spark_path

_SUMMARY: Final = "summary.json"


class OutputFolder:
    """A folder that the job owns, on a file system that driver and executors share, or in a store that Spark knows.

    ``summary.json`` is deleted first and written last, so that its presence means that everything else is complete.

    :raises ConfigurationError: the path is a URL of a store that cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self._location = shared_location(path, what="output")
        self._storage = open_storage(self._location, what="output", mode=SHARED_MODE)

    def begin(self) -> None:
        """Create the folder, and delete an earlier summary."""
        if "://" not in self._location:
            Path(self._location).mkdir(parents=True, exist_ok=True)
        self._storage.delete(_SUMMARY)

    def write_and_read(self, table: DataFrame, name: str) -> DataFrame:
        """Replace a table and return what was written, so that it is computed only once."""
        return table.sparkSession.read.parquet(self._write(table, name))

    def write_rows(self, spark: SparkSession, schema: RowSchema, rows: Iterable[Mapping[str, Any]], name: str) -> None:
        """Replace a table by rows of the driver."""
        self._write(spark.createDataFrame(schema.table(rows)).coalesce(1), name)

    def finish(self, summary: Mapping[str, Any], page: str) -> None:
        """Write the report and the summary."""
        self._storage.replace("report.html", page.encode())
        self._storage.replace(_SUMMARY, f"{json.dumps(summary, indent=2)}\n".encode())

    def _write(self, table: DataFrame, name: str) -> str:
        path = spark_path(f"{self._location}/{name}")
        table.write.mode("overwrite").parquet(path)
        return path
