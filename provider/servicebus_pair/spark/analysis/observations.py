"""Observations of messages as DataFrames: ledger records, receipts, and messages found in queues."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.ledger import (
    CLOSED,
    KINDS,
    MAX_AT,
    MAX_BYTES,
    MAX_TEXT_BYTES,
    ROUTES,
    SEGMENT,
    Location,
    check_version,
    days_since,
    folded_twice,
    run_partition,
)
from servicebus_pair.spark.analysis.peeking import PEEKED_SCHEMA, peek_task, spool_task
from servicebus_pair.spark.analysis.receiving_entities import ReceivingEntity
from servicebus_pair.spark.base.credential_reference import PairReference
from servicebus_pair.spark.base.folded_ledger import FOLDED_BLOCK, FOLDED_SCHEMA, check_readable
from servicebus_pair.spark.base.shared_paths import spark_path
from servicebus_pair.spark.base.tables import LINE_LIMIT
from servicebus_pair.spark.report.reconcile_result import LedgerCounts

_RECORD: Final = FOLDED_SCHEMA.ddl.partition(", `file`")[0]
_FILE_NAME: Final = "_metadata.file_name"
_MAX_LINE_BYTES: Final = 65_536  # no writer has longer lines
_MAX_PEEK_TASKS: Final = 8
_MOVES: Final = ("syphoned", "unspooled")
_MAX_CLOSED_FILES: Final = 10_000
# More than the bytes of any segment, of which Spark may read several blocks; numbers of eight digits fit into 64 bits.
_SEGMENT_BLOCKS: Final = 1 << 36


def read_ledger(spark: SparkSession, folder: str) -> DataFrame:
    """Return the records of a ledger by the rules of ``core.ledger.reader``; ``kind`` is null for an invalid line.

    The line that closes a file has the kind ``closed``, and the file's number of ``records``. ``block`` and ``line``
    give the order within a ``file``, because messages accepted together have the same time. The segments of a writer
    are one file, under the name that a manifest has.

    :param folder: folder of the ledger, or its URL, including its subfolders.
    :raises ConfigurationError: the folder does not exist.
    """
    check_readable(folder)
    lines = _read_lines(spark, folder)
    segment = F.regexp_extract(_FILE_NAME, SEGMENT, 1).try_cast("bigint")
    # Numbers are assigned before any line is filtered out, so that they grow within each block of a file.
    numbered = lines.select(
        "value",
        _writer().alias("file"),
        (F.coalesce(segment, F.lit(0)) * _SEGMENT_BLOCKS + F.col("_metadata.file_block_start")).alias("block"),
        F.monotonically_increasing_id().alias("line"),
    )
    return _parse(numbered, "file", "block", "line").unionByName(_read_folded(spark, folder))


def read_run(spark: SparkSession, folder: str, *, run: str, since: float) -> DataFrame:
    """Return the records that a run has written since a time, without reading those of others.

    :param since: seconds since the Unix epoch.
    """
    days, name = list(days_since(since, now=time.time())), run_partition(run)
    path, folders = f"{folder}/{{{','.join(days)}}}/{name}", [f"{day}/{name}" for day in days]
    check_readable(folder, folders)
    try:
        lines = _read_lines(spark, path, folded_twice(folder, folders))
        folded = _read_folded(spark, path)
    except ConfigurationError:  # it has written nothing
        return _parse(spark.createDataFrame([], "value string"))
    return (
        _parse(lines)
        .unionByName(folded.drop("file", "block", "line"))
        .where((F.col("run") == run) & (F.col("at") >= since))
    )


def closed_files(ledger: DataFrame) -> list[str]:
    """Return ledger files to which nothing more will be written, without folded ones; not all of very many.

    :param ledger: result of :func:`read_ledger`.
    """
    files = (
        ledger.where(F.col("block") != FOLDED_BLOCK)
        .groupBy("file")
        .agg(
            F.count_if(F.col("kind").isin(*KINDS)).alias("held"),
            F.max(F.when(F.col("kind") == CLOSED, F.col("records"))).alias("closed"),
        )
    )
    return [row["file"] for row in files.where("held = closed").limit(_MAX_CLOSED_FILES).collect()]


def read_moves(spark: SparkSession, folder: str, ledger: DataFrame) -> DataFrame:
    """Return the moves that a ledger records now; a file that had been closed before is not read again.

    A move is recorded before its message leaves the backlog. So a message that was in no backlog queue is either
    among the moves that are read afterwards, or lost.

    :param ledger: result of :func:`read_ledger` for the same folder, from before the backlog was read.
    """
    closed = closed_files(ledger)
    final = F.col("file").isin(*closed) | (F.col("block") == FOLDED_BLOCK)
    known = ledger.where(F.col("kind").isin(*_MOVES) & final)
    lines = _read_lines(spark, folder).where(~_writer().isin(*closed))
    named = F.col("value").contains('"syphoned"') | F.col("value").contains('"unspooled"')
    since = _parse(lines.select("value").where(named)).where(F.col("kind").isin(*_MOVES))
    return known.unionByName(since, allowMissingColumns=True)


def _read_lines(spark: SparkSession, folder: str, twice: Sequence[str] | None = None) -> DataFrame:
    reader = spark.read.option(LINE_LIMIT, _MAX_LINE_BYTES)
    try:
        lines = reader.text(spark_path(folder), pathGlobFilter="*.jsonl", recursiveFileLookup=True)
    except AnalysisException as error:
        raise ConfigurationError(
            f"ledger {folder!r} cannot be read ({error.getCondition()}): name its folder"
        ) from None
    twice = folded_twice(folder) if twice is None else twice
    return lines.where(~F.col(_FILE_NAME).isin(*twice)) if twice else lines


def _writer() -> Column:
    """Return the name of the file that a line is in; of all segments of a writer, the same."""
    return F.regexp_replace(_FILE_NAME, SEGMENT, ".jsonl")


def _read_folded(spark: SparkSession, folder: str) -> DataFrame:
    reader = spark.read.schema(FOLDED_SCHEMA.ddl)
    rows = reader.parquet(spark_path(folder), pathGlobFilter="*.parquet", recursiveFileLookup=True)
    return rows.where(_is_valid(""))


def _parse(lines: DataFrame, *columns: str) -> DataFrame:
    records = lines.where(F.trim("value") != "").select(F.from_json("value", _RECORD).alias("record"), *columns)
    return records.withColumn("record", F.when(_is_valid("record."), F.col("record"))).select("record.*", *columns)


def _is_valid(prefix: str) -> Column:
    def field(name: str) -> Column:
        return F.col(f"{prefix}{name}")

    valid = field("kind").isin(*KINDS) & field("route").isin(*ROUTES) & (field("v") >= 0)
    valid &= field("bytes").between(0, MAX_BYTES) & field("at").between(0, MAX_AT)
    for name in ("id", "entity"):
        valid &= field(name).isNotNull()
    valid |= (field("kind") == CLOSED) & field("records").isNotNull()
    # A dictionary of Parquet makes terabytes of one long text, once rows are exchanged.
    for name in ("id", "entity", "queue", "run", "digest", "spool"):
        valid &= F.coalesce(F.octet_length(field(name)), F.lit(0)) <= MAX_TEXT_BYTES
    return valid


def count_ledger_records(ledger: DataFrame) -> LedgerCounts:
    """Count records and incomplete lines.

    :raises ConfigurationError: a record has an unsupported version.
    """
    counts = ledger.agg(F.count_if(F.col("kind").isin(*KINDS)), F.count_if(F.col("kind").isNull()), F.max("v")).first()
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
    recorded_queues: Sequence[str] = (),
) -> DataFrame:
    """Return one row per message in queues and their dead-letter queues.

    Every Spark action peeks again, and queues change meanwhile: persist the result.

    :param entities: what to peek; ``None`` is the pair's backlog queues.
    :param diverted: entities whose sessions in the backlog must be read.
    :param recorded_queues: backlog queues to read in addition to those in use.
    """
    # Each task opens all its links concurrently, so one wave of tasks is faster than several.
    tasks = min(_MAX_PEEK_TASKS, spark.sparkContext.defaultParallelism)

    def peek_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column("id").to_pylist():
                yield from peek_task(
                    reference, entities, index, tasks=tasks, diverted=diverted, recorded_queues=recorded_queues
                )

    return spark.range(0, tasks, 1, tasks).mapInArrow(peek_batches, PEEKED_SCHEMA.ddl)


def peek_spool(spark: SparkSession, reference: PairReference) -> DataFrame:
    """Return one row per message in the pair's spool, as :func:`spool_task` yields them; persist the result."""

    def peek_batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield from spool_task(reference)

    return spark.range(0, 1, 1, 1).mapInArrow(peek_batches, PEEKED_SCHEMA.ddl)


def read_receipts(receipts: DataFrame, *, entities: Sequence[str]) -> DataFrame:
    """Return consumers' receipts as rows like those of :func:`peek_messages`.

    :param receipts: column ``messageId``, and ``entity`` unless the receipts are of the only entity.
    :param entities: what messages were sent to.
    :raises ConfigurationError: a column is missing.
    """
    if "messageId" not in receipts.columns or ("entity" not in receipts.columns and len(entities) > 1):
        raise ConfigurationError(
            f"the receipts have the columns {', '.join(receipts.columns)}: required are messageId, and entity if "
            "several entities are reconciled"
        )
    entity = F.col("entity") if "entity" in receipts.columns else F.lit(entities[0])
    row = {"entity": entity, "id": F.col("messageId"), "place": F.lit(""), "location": F.lit(str(Location.RECEIPT))}
    return receipts.select(*(column.cast("string").alias(name) for name, column in row.items())).where("id is not null")
