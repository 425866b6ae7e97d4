"""Time series of message counts, and the histogram of waits, computed by Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core.events import Route
from servicebus_pair.spark.report.histogram_bins import bin_index, bin_labels

PRIMARY: Final = "primary"
DIVERTED: Final = "diverted"
SYPHONED: Final = "syphoned"
# Seconds; round values on a time axis.
_STEP_LENGTHS: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
MAX_STEPS: Final = 240
# Exclusive upper bounds by label, seconds; one more bin is open-ended.
WAIT_BINS: Final = (
    {"1 s": 1, "2 s": 2, "5 s": 5, "10 s": 10, "20 s": 20, "30 s": 30, "1 min": 60, "2 min": 120, "5 min": 300}
    | {"10 min": 600, "20 min": 1200, "30 min": 1800, "1 h": 3600, "2 h": 7200, "6 h": 21_600, "12 h": 43_200}
    | {"1 d": 86_400, "2 d": 172_800, "7 d": 604_800, "30 d": 2_592_000}
)


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """Message counts over time.

    :param start: start of step 0, seconds since the Unix epoch.
    :param step: length of a step, seconds.
    :param counts: by series, then by index of the step.
    """

    start: float
    step: float
    counts: Mapping[str, Mapping[int, int]]


def message_flow(verdicts: DataFrame) -> TimeSeries:
    """Count messages over time by route: primary, diverted, syphoned; each message at most once per route."""
    route = F.when(F.col("route") == str(Route.PRIMARY), PRIMARY).otherwise(DIVERTED)
    accepted = verdicts.where(F.col("sent_at").isNotNull()).select(route.alias("series"), F.col("sent_at").alias("at"))
    moved = verdicts.where(F.col("moved_at").isNotNull()).select(
        F.lit(SYPHONED).alias("series"), F.col("moved_at").alias("at")
    )
    return count_over_time(accepted.unionByName(moved))


def count_over_time(events: DataFrame) -> TimeSeries:
    """Count events per step; a step is at least one second long.

    :param events: columns ``series``, and ``at`` in seconds since the Unix epoch.
    """
    bounds = events.agg(F.min("at"), F.max("at")).first()
    if bounds is None or bounds[0] is None:
        return TimeSeries(start=0.0, step=1.0, counts={})
    step = _step_length(bounds[1] - bounds[0])
    start = bounds[0] // step * step
    counts: dict[str, dict[int, int]] = {}
    for row in events.groupBy("series", F.floor((F.col("at") - start) / step).alias("slot")).count().collect():
        counts.setdefault(row["series"], {})[row["slot"]] = row["count"]
    return TimeSeries(start=start, step=step, counts=counts)


def _step_length(seconds: float) -> float:
    """Return the shortest round step length, seconds, for at most :data:`MAX_STEPS` steps (and a partial one)."""
    suitable = (float(step) for step in _STEP_LENGTHS if seconds <= step * MAX_STEPS)
    return next(suitable, _STEP_LENGTHS[-1] * float(-(-seconds // (_STEP_LENGTHS[-1] * MAX_STEPS))))


def wait_histogram(verdicts: DataFrame) -> dict[str, int]:
    """Return message counts by wait, from the first non-empty bin to the last."""
    waited = verdicts.where(F.col("wait_seconds").isNotNull())
    index = bin_index("wait_seconds", WAIT_BINS).alias("index")
    rows = waited.groupBy(index).agg(F.count("*").alias("messages")).collect()
    counts = {row["index"]: row["messages"] for row in rows}
    if not counts:
        return {}
    labels = bin_labels(WAIT_BINS)
    return {labels[index]: counts.get(index, 0) for index in range(min(counts), max(counts) + 1)}
