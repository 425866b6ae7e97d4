"""Tables that a job reads: a path with a known suffix, or a name in the catalog."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.base.redaction import task_error_message

CATALOG_TABLE: Final = "table"
FORMATS: Final = {".parquet": "parquet", ".orc": "orc", ".csv": "csv", ".json": "json", ".jsonl": "json"}


def table_format(path: str) -> str:
    """Return the format of a path by its suffix. :raises ConfigurationError: the suffix is unknown."""
    suffix = PurePosixPath(path).suffix.lower()
    if suffix not in FORMATS:
        raise ConfigurationError(f"table {path!r} has no known suffix: give --format, or one of {', '.join(FORMATS)}")
    return FORMATS[suffix]


def read_table(spark: SparkSession, path: str, kind: str | None = None) -> DataFrame:
    """Return a table.

    :param kind: its format; default: by the suffix.
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
        return spark.read.format(kind).load(path)
    except PySparkException as error:
        raise ConfigurationError(f"table {path!r} cannot be read as {kind}: {task_error_message(error)}") from None
