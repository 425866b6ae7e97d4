"""``profile``: what sits in the backlog, looked at by peek, into tables, a summary and a page.

The output folder holds, all of it this job's own:

===================  ==========================================================================
``messages/``        Parquet, a row per message: queue, sub-queue, destination, id, age, size, dead-letter reason;
                     no body
``destinations/``    Parquet, a row per destination and sub-queue: counts, bytes, ages
``ages/``            Parquet, a row per sub-queue and class of age
``sizes/``           Parquet, a row per sub-queue and class of size
``reasons/``         Parquet, a row per destination and dead-letter reason
``report.html``      the same for people, one self-contained file
``summary.json``     the same for programs; removed first and written last, so that it stands
                     only beside complete tables
===================  ==========================================================================
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core.envelope import PATH
from servicebus_pair.core.ports import Clock, SystemClock
from servicebus_pair.spark.classes import class_names, class_of
from servicebus_pair.spark.cursors import DEAD_LETTER, MAIN
from servicebus_pair.spark.files import write_json
from servicebus_pair.spark.looking import chosen_queues, look
from servicebus_pair.spark.mounts import for_spark, shared
from servicebus_pair.spark.profile_page import render
from servicebus_pair.spark.redaction import Redaction
from servicebus_pair.spark.references import PairReference
from servicebus_pair.spark.registering import register
from servicebus_pair.spark.timing import Flow, over_time

__all__ = ["AGES", "SIZES", "Profile", "profile"]

_log = logging.getLogger(__name__)
_VERSION: Final = 1
# Classes: the name, and what it ends before; the last one has no end.
AGES: Final = {"1 min": 60, "10 min": 600, "1 h": 3600, "6 h": 21_600, "1 day": 86_400, "7 days": 604_800}
SIZES: Final = {"1 KB": 1024, "4 KB": 4096, "16 KB": 16_384, "64 KB": 65_536, "256 KB": 262_144, "1 MB": 1_048_576}
# Paths of entities hold no parentheses.
_NOWHERE: Final = "(none)"


@dataclass(frozen=True, slots=True)
class Profile:
    """What a look at the backlog found; lists hold the rows of the tables of the same name.

    :param at: when the look began, seconds since the Unix epoch; ages are counted up to it.
    """

    at: float
    queues: tuple[str, ...]
    destinations: Sequence[Mapping[str, Any]]
    ages: Sequence[Mapping[str, Any]]
    sizes: Sequence[Mapping[str, Any]]
    reasons: Sequence[Mapping[str, Any]]
    seconds: float

    def messages(self, sub_queue: str) -> int:
        """Answer how many there are in the queues, or in their dead-letter queues."""
        return sum(row["messages"] for row in self.destinations if row["subQueue"] == sub_queue)

    def to_json(self) -> dict[str, Any]:
        """The form of ``summary.json``."""
        return {
            "version": _VERSION,
            "job": "profile",
            "at": round(self.at, 3),
            "queues": list(self.queues),
            "messages": self.messages(MAIN),
            "dead_letters": self.messages(DEAD_LETTER),
            "destinations": list(self.destinations),
            "ages": list(self.ages),
            "sizes": list(self.sizes),
            "reasons": list(self.reasons),
            "seconds": self.seconds,
        }


def profile(
    spark: SparkSession,
    *,
    pair_reference: str,
    output: str,
    queues: Sequence[str] | None = None,
    clock: Clock | None = None,
) -> Profile:
    """Look at every message of the backlog once, by peek, and write the output folder. Idempotent; nothing is taken.

    :param pair_reference: where driver and executors find the pair's settings, such as ``env:NAME`` or ``file:PATH``.
    :param output: folder, on a file system that driver and executors share.
    :param queues: paths of backlog queues; all of the pair's when not given.
    :raises ConfigurationError: an argument is wrong, or the backlog cannot be read; no task was begun.
    :raises pyspark.errors.PySparkException: a queue cannot be read; the message is free of secrets.
    """
    timer = SystemClock() if clock is None else clock
    at, redaction = timer.now(), Redaction()
    folder = Path(shared(output, what="output"))
    settings = PairReference.parse(pair_reference).resolve(redaction)
    chosen = chosen_queues(settings, queues)
    look(settings, chosen, redaction=redaction, sends=False)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").unlink(missing_ok=True)
    # One look, kept: each further action would look again, at queues that have changed.
    _write(_seen(spark, pair_reference, chosen, at=at), folder / "messages")
    messages = spark.read.parquet(for_spark(folder / "messages"))
    result = Profile(
        at=at,
        queues=chosen,
        destinations=_table(_destinations(messages), folder / "destinations"),
        ages=_table(_classes(messages, "age_seconds", AGES), folder / "ages"),
        sizes=_table(_classes(messages, "bytes", SIZES), folder / "sizes"),
        reasons=_table(_reasons(messages), folder / "reasons"),
        seconds=round(timer.now() - at, 3),
    )
    (folder / "report.html").write_text(render(result.to_json(), _arrivals(messages)), encoding="utf-8")
    write_json(folder / "summary.json", result.to_json())
    _log.info("profile messages=%d dead_letters=%d", result.messages(MAIN), result.messages(DEAD_LETTER))
    return result


def _seen(spark: SparkSession, reference: str, queues: Sequence[str], *, at: float) -> DataFrame:
    register(spark)
    options = {
        "credential": reference,
        "namespace": "secondary",
        "entity": ",".join(queues),
        "subQueue": f"{MAIN},{DEAD_LETTER}",
    }
    properties = F.col("applicationProperties")
    size = F.length("body") + F.coalesce(F.length(properties), F.lit(0))
    return (
        spark.read.format("servicebus")
        .options(**options)
        .load()
        .select(
            F.col("entity").alias("queue"),
            "subQueue",
            F.coalesce(F.lower(F.get_json_object(properties, f"$['{PATH}']")), F.lit(_NOWHERE)).alias("destination"),
            "messageId",
            "sequenceNumber",
            "enqueuedTime",
            F.greatest(F.lit(0.0), F.lit(at) - F.col("enqueuedTime").cast("double")).alias("age_seconds"),
            size.cast("bigint").alias("bytes"),
            "deadLetterReason",
            "deadLetterErrorDescription",
        )
    )


def _destinations(messages: DataFrame) -> DataFrame:
    return (
        messages.groupBy("destination", "subQueue")
        .agg(
            F.count("*").alias("messages"),
            F.sum("bytes").alias("bytes"),
            F.max("bytes").alias("largest_bytes"),
            F.max("age_seconds").alias("oldest_seconds"),
            F.percentile("age_seconds", 0.5).alias("median_seconds"),
            F.min("age_seconds").alias("newest_seconds"),
        )
        .orderBy("subQueue", F.desc("messages"), "destination")
    )


def _classes(messages: DataFrame, column: str, bounds: Mapping[str, int]) -> DataFrame:
    """Messages by class; those that hold any."""
    names = F.array(*(F.lit(name) for name in class_names(bounds)))
    return (
        messages.groupBy("subQueue", class_of(column, bounds).alias("number"))
        .agg(F.count("*").alias("messages"), F.sum("bytes").alias("bytes"))
        .select("subQueue", "number", F.element_at(names, F.col("number") + 1).alias("class"), "messages", "bytes")
        .orderBy("subQueue", "number")
    )


def _reasons(messages: DataFrame) -> DataFrame:
    return (
        messages.where(F.col("subQueue") == DEAD_LETTER)
        .groupBy("destination", F.coalesce("deadLetterReason", F.lit("")).alias("reason"))
        .agg(F.count("*").alias("messages"), F.first("deadLetterErrorDescription").alias("example"))
        .orderBy(F.desc("messages"), "destination", "reason")
    )


def _arrivals(messages: DataFrame) -> Flow:
    """When messages reached the backlog, by destination."""
    at = F.col("enqueuedTime").cast("double")
    return over_time(messages.select(F.col("destination").alias("series"), at.alias("at")))


def _table(rows: DataFrame, path: Path) -> list[dict[str, Any]]:
    _write(rows.coalesce(1), path)
    return [row.asDict() for row in rows.collect()]


def _write(rows: DataFrame, path: Path) -> None:
    rows.write.mode("overwrite").parquet(for_spark(path))
