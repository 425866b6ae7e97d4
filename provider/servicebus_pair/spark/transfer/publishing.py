"""``publish``: writes a table to the data source, with the checks and message ids that only the driver can provide."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses
from pyspark.sql.types import MapType

from servicebus_pair.core import EntityHealth
from servicebus_pair.core.ledger import PublishManifest
from servicebus_pair.spark.base.preflight import check_job
from servicebus_pair.spark.datasource.message_ids import id_prefix
from servicebus_pair.spark.datasource.options import WriteOptions
from servicebus_pair.spark.datasource.registration import register
from servicebus_pair.spark.datasource.write_schema import check_columns, check_rows

__all__ = ["DEFAULT_PARTITIONS", "publish"]

DEFAULT_PARTITIONS: Final = 8
# Temporary columns, dropped before the write.
_POSITION: Final = "servicebus_pair_position"
_CONTENT: Final = "servicebus_pair_content"


def publish(
    df: DataFrame,
    *,
    pair_reference: str,
    ledger: str,
    run: str,
    entity: str | None = None,
    rate: float | None = None,
    health: Mapping[str, EntityHealth] | None = None,
    partitions: int = DEFAULT_PARTITIONS,
) -> PublishManifest:
    """Write every row of ``df`` to the data source ``servicebus``; returns when all are accepted.

    Guarantee: at least once. Every row counted in the manifest is on the primary or in a backlog
    queue, and recorded in the ledger. A retried task or job sends rows again with the same message
    ids; missing ids are generated from the run, the row's position in the table and its content, so
    they do not depend on the task. Rows with the same session or partition key are sent in the
    table's order. Columns and rows are checked before anything is sent.

    :param df: columns as in ``servicebus_pair.spark.datasource.write_schema``; evaluated twice, so cache it if it is
        expensive or not deterministic.
    :param pair_reference: where executors find the pair's settings, such as ``env:NAME`` or ``file:PATH``.
    :param ledger: folder to which executors write the ledger.
    :param run: name of this run in the ledger.
    :param entity: destination of rows without an ``entity`` value.
    :param rate: messages per second over all tasks; ``None`` is unlimited.
    :param health: known health records by entity path, which executors start from.
    :param partitions: number of tasks.
    :raises ConfigurationError: the table or an argument is invalid; nothing was sent.
    :raises pyspark.errors.PySparkException: a task failed; the message contains no secrets.
    """
    check_job(df.sparkSession, rate=rate, partitions=partitions)
    options = {
        "credential": pair_reference,
        "ledger": ledger,
        "run": run,
        "health": json.dumps({path: each.to_json() for path, each in (health or {}).items()}),
    }
    if entity is not None:
        options["entity"] = entity
    if rate is not None:
        concurrent_tasks = min(partitions, df.sparkSession.sparkContext.defaultParallelism)
        options["ratePerTask"] = repr(rate / concurrent_tasks)
    WriteOptions.parse(options)
    check_columns(df.schema, entity=entity)
    check_rows(df, entity=entity)
    register(df.sparkSession)
    with tempfile.TemporaryDirectory(prefix="servicebus-pair-") as folder:
        file = Path(folder) / "manifest.json"
        rows = _repartition(_with_ids(df, run=run), partitions=partitions)
        writer = rows.write.format("servicebus").options(**options, manifest=str(file))
        writer.mode("append").save()
        return PublishManifest.from_json(json.loads(file.read_text(encoding="utf-8")))


def _with_ids(df: DataFrame, *, run: str) -> DataFrame:
    """Add ids and positions, before repartitioning may change the order of rows."""
    content = (
        F.to_json(field.name) if isinstance(field.dataType, MapType) else F.col(field.name) for field in df.schema
    )
    numbered = df.withColumns({_POSITION: F.monotonically_increasing_id(), _CONTENT: F.hex(F.xxhash64(*content))})
    generated = F.concat_ws("-", F.lit(id_prefix(run)), _POSITION, _CONTENT)
    message_id = F.coalesce("messageId", generated) if "messageId" in df.columns else generated
    return numbered.withColumn("messageId", message_id).drop(_CONTENT)


def _repartition(df: DataFrame, *, partitions: int) -> DataFrame:
    """Distribute rows over tasks; rows with the same ordering key share a task, in table order."""
    keys = [name for name in ("sessionId", "partitionKey") if name in df.columns]
    if not keys:
        return df.drop(_POSITION).repartition(partitions)
    key = F.coalesce(*keys, F.col(_POSITION).cast("string"))
    return df.repartition(partitions, key).sortWithinPartitions(_POSITION).drop(_POSITION)
