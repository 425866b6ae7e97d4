r"""Publishes a table to an entity through failover-aware senders.

::

    spark-submit publish.py --pair env:PAIR --table orders.parquet --entity orders \
        --ledger ledger --run 2026-01-01 [--format parquet|orc|csv|json|table] \
        [--select "to_json(struct(*)) AS body" --select "order_id AS messageId"] \
        [--rate 500] [--manifest m.json] [--health JSON]

The table has the columns of a write (``docs/spark.md``), or ``--select`` derives them; rows
without an ``entity`` go to that of ``--entity``. Columns of a CSV or JSON-lines file are cast to the required types (a
timestamp in ISO 8601); a nested JSON object of application properties keeps its types. At least once: another run
repeats the message ids. Rows with the same session or partition key are sent in the table's order.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses
from pyspark.sql.types import BinaryType, MapType, StructField, StructType

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.base.redaction import task_error_message
from servicebus_pair.spark.base.tables import CATALOG_TABLE, FORMATS, read_table, table_format
from servicebus_pair.spark.jobs.command_line import SPARK_ERRORS, JobParser, PublishArguments, create_session, fail

_UNTYPED_FORMATS: Final = frozenset({"csv", "json"})
_CASTS: Final = {"timeToLive": "double", "scheduledEnqueueTime": "timestamp"}


def main(arguments: Sequence[str]) -> int:
    """Run the program and return its exit status."""
    parsed = _parser().parse_args(arguments)
    try:
        kind = table_format(parsed.table) if parsed.format is None else parsed.format
        publishing = PublishArguments.from_parsed(parsed)
        manifest = publishing.publish(
            _table(create_session("publish"), parsed.table, kind, parsed.select), entity=parsed.entity
        )
    except ConfigurationError as error:
        return fail("publish", error)
    except SPARK_ERRORS as error:
        return fail("publish", f"{task_error_message(error)}; sent messages stay sent", status=1)
    rejected = f", {manifest.rejected} rows rejected" if manifest.rejected else ""
    print(f"published {manifest.primary} to the primary, {manifest.diverted} diverted{rejected}")  # noqa: T201  output
    return 0


def _parser() -> JobParser:
    parser = JobParser(
        prog="publish",
        description="publish a table: each row becomes a message, accepted by the entity or a backlog queue",
        epilog="exit status: 0, all rows are accepted; 1, a task failed, and sent messages stay sent; 2, an argument "
        "or the table is invalid, and nothing was sent",
    )
    PublishArguments.add_to(parser)
    parser.add_argument("--table", required=True, help="path of a Parquet, ORC, CSV or JSON-lines table, or its name")
    kinds = sorted({*FORMATS.values(), CATALOG_TABLE})
    parser.add_argument("--format", choices=kinds, help="default: by the path's suffix; table: a name in the catalog")
    parser.add_argument(
        "--select",
        action="append",
        metavar="EXPRESSION",
        help="a column in SQL, such as 'to_json(struct(*)) AS body'; may be repeated; default: the table's columns",
    )
    parser.add_argument("--entity", help="queue or topic path for rows without a value in column entity")
    return parser


def _table(spark: SparkSession, path: str, kind: str, select: Sequence[str] | None) -> DataFrame:
    """Read the table. :raises ConfigurationError: the table or a selected column does not exist."""
    table = read_table(spark, path, kind)
    try:
        selected = table if select is None else table.selectExpr(*select)
        if kind not in _UNTYPED_FORMATS:
            return selected
        _check_casts(selected)
        return selected.select(*(_cast(field) for field in selected.schema))
    except SPARK_ERRORS as error:
        raise ConfigurationError(
            f"table {path!r} cannot be read as {kind}: {task_error_message(error)}; nothing was sent"
        ) from None


def _cast(field: StructField) -> Column:
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
        invalid = table.where(F.col(name).isNotNull() & F.col(name).try_cast(kind).isNull()).select(name).first()
        if invalid is not None:
            raise ConfigurationError(f"column {name} holds {invalid[0]!r}: it must be a {kind}; nothing was sent")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
