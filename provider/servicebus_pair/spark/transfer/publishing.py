"""``publish``: writes a table to the data source, with the checks and message ids that only the driver can provide."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core import EntityHealth
from servicebus_pair.core.ledger import PublishManifest, check_ledger
from servicebus_pair.spark.base.message_ids import id_prefix
from servicebus_pair.spark.base.preflight import check_job
from servicebus_pair.spark.datasource.option_table import COLLECT
from servicebus_pair.spark.datasource.options import WriteOptions
from servicebus_pair.spark.datasource.registration import register
from servicebus_pair.spark.datasource.write_schema import check_columns, check_rows

DEFAULT_PARTITIONS: Final = 8
# Temporary columns, dropped before the write.
_POSITION: Final = "servicebus_pair_position"
_CONTENT: Final = "servicebus_pair_content"
_MESSAGE_ID: Final = "messageId"


def publish(
    df: DataFrame,
    *,
    pair_reference: str,
    ledger: str,
    run: str,
    entity: str | None = None,
    rate: float | None = None,
    health: Mapping[str, EntityHealth] | None = None,
    error_table: str | None = None,
    partitions: int = DEFAULT_PARTITIONS,
) -> PublishManifest:
    """Write every row of ``df`` to the data source ``servicebus``; returns when all are accepted.

    Guarantee: at least once. Every row counted in the manifest is on the primary or in a backlog
    queue, and recorded in the ledger. A retried task or job sends rows again with the same message
    ids; missing ids are those of :func:`with_message_ids`. Rows with the same session or partition key
    are sent in the table's order. Columns and rows are checked before anything is sent.

    :param df: columns as in ``servicebus_pair.spark.datasource.write_schema``; evaluated twice, so cache it if it is
        expensive or not deterministic.
    :param pair_reference: where executors find the pair's settings, such as ``env:NAME`` or ``file:PATH``.
    :param ledger: folder, or URL of one, to which executors write the ledger.
    :param run: name of this run in the ledger: one intent to send one table. Another publish of the same rows under
        this name repeats their ids, as a retry must; to send equal rows again, give another name.
    :param entity: destination of rows without an ``entity`` value.
    :param rate: messages per second over all tasks; ``None`` is unlimited.
    :param health: known health records by entity path, which executors start from.
    :param error_table: folder to which rows are written that can never be sent; ``None``: such a row fails the publish
        before anything is sent.
    :param partitions: number of tasks.
    :raises ConfigurationError: the table or an argument is invalid; nothing was sent.
    :raises pyspark.errors.PySparkException: a task failed; the message contains no secrets.
    """
    check_job(df.sparkSession, rate=rate, partitions=partitions)
    options = {
        "credential": pair_reference,
        "ledger": ledger,
        "run": run,
        "sessionsInOrder": "true",
        "health": json.dumps({path: each.to_json() for path, each in (health or {}).items()}),
    }
    if entity is not None:
        options["entity"] = entity
    if rate is not None:
        concurrent_tasks = min(partitions, df.sparkSession.sparkContext.defaultParallelism)
        options["ratePerTask"] = repr(rate / concurrent_tasks)
    if error_table is not None:
        options |= {"onError": COLLECT, "errorTable": error_table}
    parsed = WriteOptions.parse(options)
    check_columns(df.schema, entity=entity)
    if error_table is None:
        check_rows(df, entity=entity)
    check_ledger(parsed.ledger or ledger)
    register(df.sparkSession)
    with tempfile.TemporaryDirectory(prefix="servicebus-pair-") as folder:
        file = Path(folder) / "manifest.json"
        rows = _distribute(df, run=run, partitions=partitions)
        writer = rows.write.format("servicebus").options(**options, manifest=str(file))
        writer.mode("append").save()
        return PublishManifest.from_json(json.loads(file.read_text(encoding="utf-8")))


def with_message_ids(df: DataFrame, *, run: str) -> DataFrame:
    """Return ``df`` with a ``messageId`` in every row, which is the same for every way of splitting the table.

    A missing id is generated from the run, the content of the row and an occurrence number among equal rows.

    :param run: name of the run; equal rows of different runs are different messages.
    """
    return _add_ids(_with_content(df), run=run).drop(_CONTENT)


def _with_content(df: DataFrame) -> DataFrame:
    given = [F.col(_MESSAGE_ID)] if _MESSAGE_ID in df.columns else []
    # JSON names the columns, so that a null in one of two columns differs from a null in the other.
    return df.withColumn(_CONTENT, F.coalesce(*given, F.md5(F.to_json(F.struct(*df.columns)))))


def _add_ids(df: DataFrame, *, run: str) -> DataFrame:
    occurrence = F.row_number().over(Window.partitionBy(_CONTENT).orderBy(_CONTENT)) - 1
    suffix = F.when(occurrence > 0, F.concat(F.lit("-"), occurrence.cast("string"))).otherwise("")
    generated = F.concat(F.lit(f"{id_prefix(run)}-"), _CONTENT, suffix)
    given = [F.col(_MESSAGE_ID)] if _MESSAGE_ID in df.columns else []
    return df.withColumn(_MESSAGE_ID, F.coalesce(*given, generated))


def _distribute(df: DataFrame, *, run: str, partitions: int) -> DataFrame:
    """Add ids and distribute rows over tasks; rows with the same ordering key share a task, in table order."""
    keys = [name for name in ("sessionId", "partitionKey") if name in df.columns]
    # The position is added before rows are moved. One shuffle numbers equal rows and distributes those without a key.
    content = _with_content(df)
    placed = (content.withColumn(_POSITION, F.monotonically_increasing_id()) if keys else content).repartition(
        partitions, _CONTENT
    )
    rows = _add_ids(placed, run=run).drop(_CONTENT)
    if not keys:
        return rows
    key = F.coalesce(*keys, F.col(_POSITION).cast("string"))
    return rows.repartition(partitions, key).sortWithinPartitions(_POSITION).drop(_POSITION)
