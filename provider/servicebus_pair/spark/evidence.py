"""What is known of messages, as tables: the ledger's records and what the queues hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.ledger_reading import KINDS, ROUTES, check_version
from servicebus_pair.core.reconcile import Location
from servicebus_pair.spark.mounts import for_spark
from servicebus_pair.spark.peeking import PEEKED, peek_task
from servicebus_pair.spark.places import Place
from servicebus_pair.spark.reconciliation import LedgerFigures
from servicebus_pair.spark.references import PairReference

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["FOUND", "evidence", "ledger_figures", "peeked", "read_ledger"]

FOUND: Final = "found"
_RECORD: Final = (
    "v int, kind string, id string, entity string, route string, queue string, bytes bigint, at double, run string"
)
_MOST_PEEK_TASKS: Final = 8


def read_ledger(spark: SparkSession, folder: str) -> DataFrame:
    """Answer the records of a ledger by the rule of ``core.ledger_reading``; of a line that is none, ``kind`` is null.

    Within a file, ``block`` and ``line`` grow from record to record: what was accepted at once has one time.

    :param folder: the ledger's folder; files in folders below it count too.
    :raises ConfigurationError: there is no such folder.
    """
    try:
        lines = spark.read.text(for_spark(folder), pathGlobFilter="*.jsonl", recursiveFileLookup=True)
    except AnalysisException as error:
        raise ConfigurationError(
            f"ledger {folder!r} cannot be read ({error.getCondition()}): name its folder"
        ) from None
    # The numbers of lines grow within a block of a file, so they are taken before any line is left out.
    numbered = lines.select(
        "value", F.col("_metadata.file_block_start").alias("block"), F.monotonically_increasing_id().alias("line")
    )
    read = numbered.where(F.trim("value") != "").select(F.from_json("value", _RECORD).alias("record"), "block", "line")
    whole = F.col("record.kind").isin(*KINDS) & F.col("record.route").isin(*ROUTES)
    for name in ("v", "id", "entity", "bytes", "at"):
        whole &= F.col(f"record.{name}").isNotNull()
    return read.withColumn("record", F.when(whole, F.col("record"))).select("record.*", "block", "line")


def ledger_figures(ledger: DataFrame) -> LedgerFigures:
    """Count records and torn lines.

    :raises ConfigurationError: a record is of a version that this does not know.
    """
    counted = ledger.agg(F.count("kind"), F.count_if(F.col("kind").isNull()), F.max("v")).first()
    records, torn, version = (0, 0, None) if counted is None else counted
    if version is not None:
        check_version(version)
    return LedgerFigures(records, torn)


def peeked(spark: SparkSession, reference: PairReference, places: Sequence[Place] | None) -> DataFrame:
    """Answer one row per message that queues and their dead-letter queues hold.

    Each action looks again, and queues change: persist it.

    :param places: where to look; ``None`` is the pair's backlog queues.
    """
    # A task opens and closes its links at once: one wave of tasks costs less than several.
    tasks = min(_MOST_PEEK_TASKS, spark.sparkContext.defaultParallelism)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for share in batch.column("id").to_pylist():
                yield from peek_task(reference, places, share, of=tasks)

    return spark.range(0, tasks, 1, tasks).mapInArrow(task, PEEKED.ddl)


def evidence(ledger: DataFrame, found: DataFrame) -> DataFrame:
    """Answer all facts in one table: kind, id, folded entity, route, at, queue, run and location.

    :param ledger: what :func:`read_ledger` answers.
    :param found: what :func:`peeked` answers; its place becomes ``queue``.
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
