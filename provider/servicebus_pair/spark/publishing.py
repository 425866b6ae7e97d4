"""``publish``: every row of a table becomes a message, through failover-aware senders."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.health import EntityHealth
from servicebus_pair.core.manifest import EntityManifest, PublishManifest
from servicebus_pair.core.ports import Clock, SystemClock
from servicebus_pair.spark.references import PairReference
from servicebus_pair.spark.schema import check_columns, check_rows
from servicebus_pair.spark.task import SUMMARY, PublishOrder, run_task

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DEFAULT_PARTITIONS", "publish"]

_log = logging.getLogger(__name__)
DEFAULT_PARTITIONS: Final = 8


def publish(
    df: DataFrame,
    *,
    pair_reference: str,
    ledger: str,
    run: str,
    rate: float | None = None,
    health: Mapping[str, EntityHealth] | None = None,
    partitions: int = DEFAULT_PARTITIONS,
    clock: Clock | None = None,
) -> PublishManifest:
    """Send every row of ``df``; returns when all are accepted.

    Guarantee: at least once. Every row counted in the manifest is on the primary or in a backlog
    queue, and recorded in the ledger. A Spark task or a whole job that is tried again sends rows
    again, with the same message ids. Columns and rows are checked before anything is sent.

    :param df: the columns of ``servicebus_pair.spark.schema``; read twice, so cache it when it is
        costly or not the same each time.
    :param pair_reference: where executors find the pair's settings: ``env:NAME`` or ``file:PATH``.
    :param ledger: folder that executors write the ledger to.
    :param run: what this run is called in the ledger.
    :param rate: messages per second over all tasks; ``None`` is as fast as it goes.
    :param health: what is known of entities before, by path; executors heed it.
    :param partitions: how many tasks the rows are spread over.
    :raises ConfigurationError: the table or an argument is wrong; nothing was sent.
    :raises pyspark.errors.PySparkException: a task failed, with the task's message, free of secrets.
    """
    reference = PairReference.parse(pair_reference)
    _check(df, rate=rate, partitions=partitions)
    check_columns(df.schema)
    check_rows(df)
    at_a_time = min(partitions, df.sparkSession.sparkContext.defaultParallelism)
    order = PublishOrder(
        reference=reference,
        ledger=ledger,
        run=run,
        rate=None if rate is None else rate / at_a_time,
        health={} if health is None else dict(health),
    )

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return run_task(order, batches)

    timer = SystemClock() if clock is None else clock
    began = timer.now()
    rows = df.repartition(partitions).mapInArrow(task, SUMMARY.ddl).collect()
    manifest = PublishManifest.merge(
        (
            (
                row["entity"],
                EntityManifest(row["primary"], row["diverted"], EntityHealth.from_json(json.loads(row["health"]))),
            )
            for row in rows
        ),
        run=run,
        size_bytes=sum(row["bytes"] for row in rows),
        seconds=timer.now() - began,
    )
    _log.info("run=%s primary=%d diverted=%d seconds=%.1f", run, manifest.primary, manifest.diverted, manifest.seconds)
    return manifest


def _check(df: DataFrame, *, rate: float | None, partitions: int) -> None:
    if rate is not None and not rate > 0:
        raise ConfigurationError(f"rate is {rate}: it must be more than 0 messages per second")
    if partitions < 1:
        raise ConfigurationError(f"partitions is {partitions}: it must be at least 1")
    if df.sparkSession.sparkContext.getConf().get("spark.speculation", "false").lower() == "true":
        raise ConfigurationError("spark.speculation is true: set it to false, a speculative task would send twice")
