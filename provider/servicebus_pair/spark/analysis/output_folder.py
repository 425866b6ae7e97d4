"""The output folder of a job: Parquet tables, ``report.html`` and ``summary.json``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from servicebus_pair.spark.base.arrow_schema import RowSchema
from servicebus_pair.spark.base.report_files import write_json
from servicebus_pair.spark.base.shared_paths import shared_path, spark_path


class OutputFolder:
    """A folder that the job owns, on a file system that driver and executors share.

    ``summary.json`` is deleted first and written last, so that its presence means that everything else is complete.

    :raises ConfigurationError: the path is a URL.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(shared_path(path, what="output"))

    def begin(self) -> None:
        """Create the folder, and delete an earlier summary."""
        self._path.mkdir(parents=True, exist_ok=True)
        (self._path / "summary.json").unlink(missing_ok=True)

    def write_and_read(self, table: DataFrame, name: str) -> DataFrame:
        """Replace a table and return what was written, so that it is computed only once."""
        return table.sparkSession.read.parquet(self._write(table, name))

    def write_rows(self, spark: SparkSession, schema: RowSchema, rows: Iterable[Mapping[str, Any]], name: str) -> None:
        """Replace a table by rows of the driver."""
        self._write(spark.createDataFrame(schema.table(rows)).coalesce(1), name)

    def finish(self, summary: Mapping[str, Any], page: str) -> None:
        """Write the report and the summary."""
        (self._path / "report.html").write_text(page, encoding="utf-8")
        write_json(self._path / "summary.json", summary)

    def _write(self, table: DataFrame, name: str) -> str:
        path = spark_path(self._path / name)
        table.write.mode("overwrite").parquet(path)
        return path
