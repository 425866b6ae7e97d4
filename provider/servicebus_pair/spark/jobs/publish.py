r"""Publishes a table to an entity through failover-aware sends.

::

    spark-submit publish.py --pair env:PAIR --table orders.parquet --entity orders \
        --ledger ledger --run 2026-01-01 [--format parquet|csv|json] [--rate 500] [--manifest m.json] [--health JSON]

The table's columns are those of ``servicebus_pair.spark.schema``; rows without an ``entity`` go to
that of ``--entity``. Columns of a CSV or JSON-lines file are read as the types they need to
have (a timestamp in ISO 8601), and a nested JSON object of application properties keeps its types.
At least once: run again, it sends the same message ids again.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses
from pyspark.sql.types import StructField, StructType

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.jobs.arguments import PublishArguments, session

__all__ = ["main"]

_FORMATS: Final = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".jsonl": "json"}
_CASTS: Final = {"timeToLive": "double", "scheduledEnqueueTime": "timestamp"}


def main(arguments: Sequence[str]) -> int:
    """Run the program; answer its exit status."""
    parser = argparse.ArgumentParser(prog="publish", description="publish a table to an entity")
    PublishArguments.add_to(parser)
    parser.add_argument("--table", required=True, help="path of a Parquet, CSV or JSON-lines table")
    parser.add_argument("--format", choices=sorted(set(_FORMATS.values())), help="default: by the path's suffix")
    parser.add_argument("--entity", help="queue or topic path of rows that have none in the column entity")
    given = parser.parse_args(arguments)
    try:
        kind = _format(given.table) if given.format is None else given.format
        spark = session("publish")
        table = _read(spark, given.table, kind)
        manifest = PublishArguments.of(given).publish(table, entity=given.entity)
    except ConfigurationError as error:
        print(f"publish: {error}", file=sys.stderr)  # noqa: T201  a program speaks to its terminal
        return 2
    print(f"published {manifest.primary} to the primary, {manifest.diverted} diverted")  # noqa: T201  the same
    return 0


def _format(path: str) -> str:
    suffix = PurePosixPath(path).suffix.lower()
    if suffix not in _FORMATS:
        raise ConfigurationError(f"table {path!r} has no known suffix: give --format, or one of {', '.join(_FORMATS)}")
    return _FORMATS[suffix]


def _read(spark: SparkSession, path: str, kind: str) -> DataFrame:
    if kind == "parquet":
        return spark.read.parquet(path)
    # A quote within quotes is doubled, as RFC 4180 has it; Spark's own habit is a backslash.
    table = spark.read.csv(path, header=True, escape='"') if kind == "csv" else spark.read.json(path)
    _check_casts(table)
    return table.select(*(_typed(field) for field in table.schema))


def _typed(field: StructField) -> Column:
    column = F.col(field.name)
    if isinstance(field.dataType, StructType):
        return F.to_json(column).alias(field.name)
    return column.cast(_CASTS.get(field.name, "string")).alias(field.name)


def _check_casts(table: DataFrame) -> None:
    for name, kind in _CASTS.items():
        if name not in table.columns:
            continue
        wrong = table.where(F.col(name).isNotNull() & F.col(name).try_cast(kind).isNull()).select(name).first()
        if wrong is not None:
            raise ConfigurationError(f"column {name} holds {wrong[0]!r}: it must be a {kind}; nothing was sent")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
