"""Tables that a job reads: a path with a known suffix, or a name in the catalog."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses
from pyspark.sql.types import StringType, StructField, StructType

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.base.redaction import task_error_message

CATALOG_TABLE: Final = "table"
LINE_LIMIT: Final = "mapreduce.input.linerecordreader.line.maxlength"
"""Option of a reader: longer lines are passed over, and not held in memory."""
_MAX_LINE_BYTES: Final = 16 << 20
_FIRST_LINES: Final = 10
FORMATS: Final = {".parquet": "parquet", ".orc": "orc", ".csv": "csv", ".json": "json", ".jsonl": "json"}


def table_format(path: str) -> str:
    """Return the format of a path by its suffix. :raises ConfigurationError: the suffix is unknown."""
    suffix = PurePosixPath(path).suffix.lower()
    if suffix not in FORMATS:
        raise ConfigurationError(f"table {path!r} has no known suffix: give --format, or one of {', '.join(FORMATS)}")
    return FORMATS[suffix]


def read_table(
    spark: SparkSession, path: str, kind: str | None = None, *, columns: Sequence[str] | None = None
) -> DataFrame:
    """Return a table.

    :param kind: its format; default: by the suffix.
    :param columns: of texts, all that is needed of it: others wrote it, and JSON has a column for each name in it.
    :raises ConfigurationError: it cannot be read.
    """
    kind = table_format(path) if kind is None else kind
    try:
        match kind:
            case "table":
                return spark.table(path)
            case "csv":
                # RFC 4180 escapes a quote by doubling it; Spark's default is a backslash.
                return spark.read.csv(path, header=True, escape='"')
            case "json" if columns is not None:
                found = _json_columns(spark, path, columns)
                return spark.read.option(LINE_LIMIT, _MAX_LINE_BYTES).json(path, schema=found)
        return spark.read.format(kind).load(path)
    except PySparkException as error:
        raise ConfigurationError(f"table {path!r} cannot be read as {kind}: {task_error_message(error)}") from None


def _json_columns(spark: SparkSession, path: str, columns: Sequence[str]) -> StructType:
    """Return which of the columns the first lines of a JSON file have."""
    lines = spark.read.option(LINE_LIMIT, _MAX_LINE_BYTES).text(path).where(F.trim("value") != "").limit(_FIRST_LINES)
    names = lines.select(F.explode(F.json_object_keys("value")).alias("name")).where(F.col("name").isin(*columns))
    found = {row["name"] for row in names.distinct().collect()}
    return StructType([StructField(each, StringType()) for each in columns if each in found])
