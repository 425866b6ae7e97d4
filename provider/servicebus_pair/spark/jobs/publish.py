r"""Publishes a table to an entity through failover-aware sends.

::

    spark-submit publish.py --pair env:PAIR --table orders.parquet --entity orders \
        --ledger ledger --run 2026-01-01 [--format parquet|orc|csv|json|table] \
        [--select "to_json(struct(*)) AS body" --select "order_id AS messageId"] \
        [--rate 500] [--manifest m.json] [--health JSON]

The table's columns are those of ``servicebus_pair.spark.schema``, or are made of it by ``--select``; rows without
an ``entity`` go to that of ``--entity``. Columns of a CSV or JSON-lines file are read as the types they need to
have (a timestamp in ISO 8601), and a nested JSON object of application properties keeps its types.
At least once: run again, it sends the same message ids again. Rows of one session or partition key are sent in
the table's order.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses
from pyspark.sql.types import BinaryType, MapType, StructField, StructType

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.jobs.arguments import PublishArguments, session
from servicebus_pair.spark.redaction import task_error

__all__ = ["main"]

_CATALOG: Final = "table"
_FORMATS: Final = {".parquet": "parquet", ".orc": "orc", ".csv": "csv", ".json": "json", ".jsonl": "json"}
_TEXTS: Final = frozenset({"csv", "json"})
_CASTS: Final = {"timeToLive": "double", "scheduledEnqueueTime": "timestamp"}


def main(arguments: Sequence[str]) -> int:
    """Run the program; answer its exit status."""
    given = _parser().parse_args(arguments)
    try:
        kind = _format(given.table) if given.format is None else given.format
        publishing = PublishArguments.of(given)
        manifest = publishing.publish(_table(session("publish"), given.table, kind, given.select), entity=given.entity)
    except ConfigurationError as error:
        print(f"publish: {error}", file=sys.stderr)  # noqa: T201  a program speaks to its terminal
        return 2
    except PySparkException as error:
        print(f"publish: {task_error(error)}; what was sent stays sent", file=sys.stderr)  # noqa: T201  the same
        return 1
    print(f"published {manifest.primary} to the primary, {manifest.diverted} diverted")  # noqa: T201  the same
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="publish",
        description="publish a table to an entity: each row becomes a message, accepted by the entity or the backlog",
        epilog="exit status: 0, all rows are accepted; 1, a task failed, and what was sent stays sent; 2, an argument "
        "or the table is wrong, and nothing was sent",
    )
    PublishArguments.add_to(parser)
    parser.add_argument("--table", required=True, help="path of a Parquet, ORC, CSV or JSON-lines table, or its name")
    kinds = sorted({*_FORMATS.values(), _CATALOG})
    parser.add_argument("--format", choices=kinds, help="default: by the path's suffix; table: a name in the catalog")
    parser.add_argument(
        "--select",
        action="append",
        metavar="EXPRESSION",
        help="a column in SQL, as 'to_json(struct(*)) AS body'; several times for several; default: the table's own",
    )
    parser.add_argument("--entity", help="queue or topic path of rows that have none in the column entity")
    return parser


def _format(path: str) -> str:
    suffix = PurePosixPath(path).suffix.lower()
    if suffix not in _FORMATS:
        raise ConfigurationError(f"table {path!r} has no known suffix: give --format, or one of {', '.join(_FORMATS)}")
    return _FORMATS[suffix]


def _table(spark: SparkSession, path: str, kind: str, select: Sequence[str] | None) -> DataFrame:
    """Read the table. :raises ConfigurationError: it is not there, or has not what is selected."""
    try:
        table = _read(spark, path, kind)
        chosen = table if select is None else table.selectExpr(*select)
        if kind not in _TEXTS:
            return chosen
        _check_casts(chosen)
        return chosen.select(*(_typed(field) for field in chosen.schema))
    except PySparkException as error:
        raise ConfigurationError(
            f"table {path!r} cannot be read as {kind}: {task_error(error)}; nothing was sent"
        ) from None


def _read(spark: SparkSession, path: str, kind: str) -> DataFrame:
    match kind:
        case "table":
            return spark.table(path)
        case "csv":
            # A quote within quotes is doubled, as RFC 4180 has it; Spark's own habit is a backslash.
            return spark.read.csv(path, header=True, escape='"')
    return spark.read.format(kind).load(path)


def _typed(field: StructField) -> Column:
    column = F.col(f"`{field.name}`")
    match field.dataType:
        case StructType():
            return F.to_json(column).alias(field.name)
        case MapType() | BinaryType():
            return column
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
