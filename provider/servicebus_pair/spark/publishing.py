"""``publish``: the data source with all that only the driver can do, for programs that submit a table."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses
from pyspark.sql.types import MapType

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.health import EntityHealth
from servicebus_pair.core.manifest import PublishManifest
from servicebus_pair.spark.exclusive import check_no_speculation
from servicebus_pair.spark.naming import id_prefix
from servicebus_pair.spark.options import WriteOptions
from servicebus_pair.spark.registering import register
from servicebus_pair.spark.schema import check_columns, check_rows

__all__ = ["DEFAULT_PARTITIONS", "publish"]

DEFAULT_PARTITIONS: Final = 8
# Columns that stand beside those of the table until it is written.
_PLACE: Final = "servicebus_pair_place"
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
    queue, and recorded in the ledger. A Spark task or a whole job that is tried again sends rows
    again, with the same message ids: where there are none, they are made of the run, the row's place
    in the table and its content, whichever task sends it. Rows of one session or partition key are
    sent in the table's order. Columns and rows are checked before anything is sent.

    :param df: the columns of ``servicebus_pair.spark.schema``; read twice, so cache it when it is
        costly or not the same each time.
    :param pair_reference: where executors find the pair's settings, such as ``env:NAME`` or ``file:PATH``.
    :param ledger: folder that executors write the ledger to.
    :param run: what this run is called in the ledger.
    :param entity: where rows go that do not say it themselves.
    :param rate: messages per second over all tasks; ``None`` is as fast as it goes.
    :param health: what is known of entities before, by path; executors heed it.
    :param partitions: how many tasks the rows are spread over.
    :raises ConfigurationError: the table or an argument is wrong; nothing was sent.
    :raises pyspark.errors.PySparkException: a task failed, with the task's message, free of secrets.
    """
    _check(df, rate=rate, partitions=partitions)
    known = {} if health is None else health
    options = {
        "credential": pair_reference,
        "ledger": ledger,
        "run": run,
        "health": json.dumps({path: each.to_json() for path, each in known.items()}),
    }
    if entity is not None:
        options["entity"] = entity
    if rate is not None:
        at_a_time = min(partitions, df.sparkSession.sparkContext.defaultParallelism)
        options["ratePerTask"] = repr(rate / at_a_time)
    WriteOptions.of(options)
    check_columns(df.schema, entity=entity)
    check_rows(df, entity=entity)
    register(df.sparkSession)
    with tempfile.TemporaryDirectory(prefix="servicebus-pair-") as folder:
        file = Path(folder) / "manifest.json"
        rows = _spread(_with_ids(df, run=run), partitions=partitions)
        writer = rows.write.format("servicebus").options(**options, manifest=str(file))
        writer.mode("append").save()
        return PublishManifest.from_json(json.loads(file.read_text(encoding="utf-8")))


def _with_ids(df: DataFrame, *, run: str) -> DataFrame:
    """Give ids before rows are spread over tasks, where their order may change; and their places."""
    content = (
        F.to_json(field.name) if isinstance(field.dataType, MapType) else F.col(field.name) for field in df.schema
    )
    placed = df.withColumns({_PLACE: F.monotonically_increasing_id(), _CONTENT: F.hex(F.xxhash64(*content))})
    made = F.concat_ws("-", F.lit(id_prefix(run)), _PLACE, _CONTENT)
    message_id = F.coalesce("messageId", made) if "messageId" in df.columns else made
    return placed.withColumn("messageId", message_id).drop(_CONTENT)


def _spread(df: DataFrame, *, partitions: int) -> DataFrame:
    """Spread rows over tasks; those whose order counts share one, in their order."""
    keys = [name for name in ("sessionId", "partitionKey") if name in df.columns]
    if not keys:
        return df.drop(_PLACE).repartition(partitions)
    together = F.coalesce(*keys, F.col(_PLACE).cast("string"))
    return df.repartition(partitions, together).sortWithinPartitions(_PLACE).drop(_PLACE)


def _check(df: DataFrame, *, rate: float | None, partitions: int) -> None:
    if rate is not None and not rate > 0:
        raise ConfigurationError(f"rate is {rate}: it must be more than 0 messages per second")
    if partitions < 1:
        raise ConfigurationError(f"partitions is {partitions}: it must be at least 1")
    check_no_speculation(df.sparkSession)
