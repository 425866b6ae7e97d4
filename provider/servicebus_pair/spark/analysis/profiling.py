"""``profile``: peeks the backlog and writes tables, a summary and an HTML report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core.model import SystemClock, get_logger
from servicebus_pair.core.protocol import PATH, is_session_queue
from servicebus_pair.spark.analysis.output_folder import OutputFolder
from servicebus_pair.spark.base.credential_reference import PairReference
from servicebus_pair.spark.base.offsets import DEAD_LETTER, MAIN
from servicebus_pair.spark.base.preflight import check_access, select_queues
from servicebus_pair.spark.base.redaction import Redaction
from servicebus_pair.spark.datasource.registration import register
from servicebus_pair.spark.report.histogram_bins import bin_index, bin_labels
from servicebus_pair.spark.report.profile_report import render
from servicebus_pair.spark.report.time_series import TimeSeries, count_over_time

_log = get_logger(__name__)
_VERSION: Final = 1
# Exclusive upper bounds by label, seconds and bytes; one more bin is open-ended.
AGE_BINS: Final = {"1 min": 60, "10 min": 600, "1 h": 3600, "6 h": 21_600, "1 day": 86_400, "7 days": 604_800}
SIZE_BINS: Final = {"1 KB": 1024, "4 KB": 4096, "16 KB": 16_384, "64 KB": 65_536, "256 KB": 262_144, "1 MB": 1_048_576}
# Not a valid entity path, so it cannot collide with one.
_NO_DESTINATION: Final = "(none)"


@dataclass(frozen=True, slots=True)
class Profile:
    """The profile of a backlog; the lists contain the rows of the tables with the same names.

    :param at: start of the job, seconds since the Unix epoch; ages are relative to it.
    """

    at: float
    queues: tuple[str, ...]
    destinations: Sequence[Mapping[str, Any]]
    ages: Sequence[Mapping[str, Any]]
    sizes: Sequence[Mapping[str, Any]]
    reasons: Sequence[Mapping[str, Any]]
    seconds: float

    def messages(self, sub_queue: str) -> int:
        """Return the number of messages in the main queues or in the dead-letter queues."""
        return sum(row["messages"] for row in self.destinations if row["subQueue"] == sub_queue)

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``summary.json``."""
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
) -> Profile:
    """Peek every message of the backlog and write the output folder. Idempotent; nothing is received.

    Queues that require sessions are read session by session, under their locks: the job fails while a syphon holds one.

    :param pair_reference: where driver and executors find the pair's settings, such as ``env:NAME`` or ``file:PATH``.
    :param output: folder, or URL of one, which driver and executors share.
    :param queues: paths of backlog queues; default: all of the pair.
    :raises ConfigurationError: an argument is invalid, or the backlog cannot be read; no task was started.
    :raises pyspark.errors.PySparkException: a queue cannot be read; the message contains no secrets.
    """
    clock, redaction = SystemClock(), Redaction()
    at = clock.now()
    folder = OutputFolder(output)
    settings = PairReference.parse(pair_reference).resolve(redaction)
    selected = select_queues(settings, queues)
    sessions = check_access(settings, selected, redaction=redaction, sends=False).sessions
    by_session = [queue for queue in selected if is_session_queue(settings.primary.namespace, queue)]
    unordered = [queue for queue in selected if queue not in by_session]
    folder.begin()
    # Written first: every further Spark action on the queues would peek again, and queues change.
    messages = folder.write_and_read(
        _read_messages(spark, pair_reference, unordered, by_session, sessions, at=at), "messages"
    )

    def rows(table: DataFrame, name: str) -> list[dict[str, Any]]:
        return [row.asDict() for row in folder.write_and_read(table.coalesce(1), name).collect()]

    result = Profile(
        at=at,
        queues=selected,
        destinations=rows(_destinations(messages), "destinations"),
        ages=rows(_histogram(messages, "age_seconds", AGE_BINS), "ages"),
        sizes=rows(_histogram(messages, "bytes", SIZE_BINS), "sizes"),
        reasons=rows(_reasons(messages), "reasons"),
        seconds=round(clock.now() - at, 3),
    )
    folder.finish(result.to_json(), render(result.to_json(), _arrivals(messages)))
    _log.info("profile messages=%d dead_letters=%d", result.messages(MAIN), result.messages(DEAD_LETTER))
    return result


def _read_messages(
    spark: SparkSession,
    reference: str,
    unordered: Sequence[str],
    by_session: Sequence[str],
    sessions: Sequence[str],
    *,
    at: float,
) -> DataFrame:
    register(spark)

    def read(queues: Sequence[str], **options: str) -> DataFrame:
        loaded = spark.read.format("servicebus").options(
            credential=reference, namespace="secondary", entity=",".join(queues), **options
        )
        return _columns(loaded.load(), at=at)

    parts = [read(unordered, subQueue=f"{MAIN},{DEAD_LETTER}")] if unordered else []
    if by_session:
        parts.append(read(by_session, subQueue=DEAD_LETTER))
        if sessions:
            parts.append(read(by_session, sessionId=",".join(sessions)))
    return reduce(DataFrame.unionByName, parts)


def _columns(messages: DataFrame, *, at: float) -> DataFrame:
    properties = F.col("applicationProperties")
    size = F.length("body") + F.coalesce(F.length(properties), F.lit(0))
    return messages.select(
        F.col("entity").alias("queue"),
        "subQueue",
        F.coalesce(F.lower(F.get_json_object(properties, f"$['{PATH}']")), F.lit(_NO_DESTINATION)).alias("destination"),
        "messageId",
        "sequenceNumber",
        "enqueuedTime",
        F.greatest(F.lit(0.0), F.lit(at) - F.col("enqueuedTime").cast("double")).alias("age_seconds"),
        size.cast("bigint").alias("bytes"),
        "deadLetterReason",
        "deadLetterErrorDescription",
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


def _histogram(messages: DataFrame, column: str, bounds: Mapping[str, int]) -> DataFrame:
    """Return the non-empty bins of a histogram."""
    labels = F.array(*(F.lit(label) for label in bin_labels(bounds)))
    return (
        messages.groupBy("subQueue", bin_index(column, bounds).alias("number"))
        .agg(F.count("*").alias("messages"), F.sum("bytes").alias("bytes"))
        .select("subQueue", "number", F.element_at(labels, F.col("number") + 1).alias("class"), "messages", "bytes")
        .orderBy("subQueue", "number")
    )


def _reasons(messages: DataFrame) -> DataFrame:
    return (
        messages.where(F.col("subQueue") == DEAD_LETTER)
        .groupBy("destination", F.coalesce("deadLetterReason", F.lit("")).alias("reason"))
        .agg(F.count("*").alias("messages"), F.first("deadLetterErrorDescription").alias("example"))
        .orderBy(F.desc("messages"), "destination", "reason")
    )


def _arrivals(messages: DataFrame) -> TimeSeries:
    """Count messages over their enqueue time, by destination."""
    at = F.col("enqueuedTime").cast("double")
    return count_over_time(messages.select(F.col("destination").alias("series"), at.alias("at")))
