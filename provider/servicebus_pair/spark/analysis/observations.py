"""Observations of messages as DataFrames: ledger records, and messages found in queues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.ledger import KINDS, ROUTES, Location, check_version
from servicebus_pair.spark.analysis.peeking import PEEKED_SCHEMA, peek_task
from servicebus_pair.spark.analysis.receiving_entities import ReceivingEntity
from servicebus_pair.spark.base.credential_reference import PairReference
from servicebus_pair.spark.base.shared_paths import spark_path
from servicebus_pair.spark.report.reconcile_result import LedgerCounts

__all__ = ["FOUND", "combine_observations", "count_ledger_records", "peek_messages", "read_ledger"]

FOUND: Final = "found"
_RECORD: Final = (
    "v int, kind string, id string, entity string, route string, queue string, bytes bigint, at double, run string"
)
_MAX_PEEK_TASKS: Final = 8


def read_ledger(spark: SparkSession, folder: str) -> DataFrame:
    """Return the records of a ledger by the rules of ``core.ledger.reader``; ``kind`` is null for an invalid line.

    ``block`` and ``line`` give the order within a file, because messages accepted together have the same time.

    :param folder: folder of the ledger, including its subfolders.
    :raises ConfigurationError: the folder does not exist.
    """
    try:
        lines = spark.read.text(spark_path(folder), pathGlobFilter="*.jsonl", recursiveFileLookup=True)
    except AnalysisException as error:
        raise ConfigurationError(
            f"ledger {folder!r} cannot be read ({error.getCondition()}): name its folder"
        ) from None
    # Numbers are assigned before any line is filtered out, so that they grow within each block of a file.
    numbered = lines.select(
        "value", F.col("_metadata.file_block_start").alias("block"), F.monotonically_increasing_id().alias("line")
    )
    records = numbered.where(F.trim("value") != "").select(
        F.from_json("value", _RECORD).alias("record"), "block", "line"
    )
    valid = F.col("record.kind").isin(*KINDS) & F.col("record.route").isin(*ROUTES)
    for name in ("v", "id", "entity", "bytes", "at"):
        valid &= F.col(f"record.{name}").isNotNull()
    return records.withColumn("record", F.when(valid, F.col("record"))).select("record.*", "block", "line")


def count_ledger_records(ledger: DataFrame) -> LedgerCounts:
    """Count records and incomplete lines.

    :raises ConfigurationError: a record has an unsupported version.
    """
    counts = ledger.agg(F.count("kind"), F.count_if(F.col("kind").isNull()), F.max("v")).first()
    records, torn, version = (0, 0, None) if counts is None else counts
    if version is not None:
        check_version(version)
    return LedgerCounts(records, torn)


def peek_messages(
    spark: SparkSession,
    reference: PairReference,
    entities: Sequence[ReceivingEntity] | None,
    *,
    diverted: Sequence[str] = (),
) -> DataFrame:
    """Return one row per message in queues and their dead-letter queues.

    Every Spark action peeks again, and queues change meanwhile: persist the result.

    :param entities: what to peek; ``None`` is the pair's backlog queues.
    :param diverted: entities whose sessions in the backlog must be read.
    """
    # Each task opens all its links concurrently, so one wave of tasks is faster than several.
    tasks = min(_MAX_PEEK_TASKS, spark.sparkContext.defaultParallelism)

    def peek_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column("id").to_pylist():
                yield from peek_task(reference, entities, index, tasks=tasks, diverted=diverted)

    return spark.range(0, tasks, 1, tasks).mapInArrow(peek_batches, PEEKED_SCHEMA.ddl)


def combine_observations(ledger: DataFrame, found: DataFrame) -> DataFrame:
    """Return all observations in one table: kind, id, lower-case entity, route, at, queue, run and location.

    :param ledger: result of :func:`read_ledger`.
    :param found: result of :func:`peek_messages`; its place becomes ``queue``.
    """
    records = ledger.where(F.col("kind").isNotNull())
    copies = found.where(F.col("location").isin(*(str(location) for location in Location)))
    return (
        records.select("kind", "id", "entity", "route", "at", "queue", "run")
        .unionByName(
            copies.select(F.lit(FOUND).alias("kind"), "id", "entity", F.col("place").alias("queue"), "location"),
            allowMissingColumns=True,
        )
        .withColumn("entity", F.lower("entity"))
    )
