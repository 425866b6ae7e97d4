"""When messages went which way, and how long they waited: added up by Spark, for plots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core.events import Route
from servicebus_pair.spark.classes import class_names, class_of

__all__ = ["DIVERTED", "PRIMARY", "STEPS", "SYPHONED", "WAITS", "Flow", "flow", "over_time", "waits"]

PRIMARY: Final = "primary"
DIVERTED: Final = "diverted"
SYPHONED: Final = "syphoned"
# Seconds. Each is a part of the next one that a reader of a clock expects.
_STEP: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
STEPS: Final = 240
# Classes of waits: the name, and what it ends before, in seconds; the last one has no end.
WAITS: Final = (
    {"1 s": 1, "2 s": 2, "5 s": 5, "10 s": 10, "20 s": 20, "30 s": 30, "1 min": 60, "2 min": 120, "5 min": 300}
    | {"10 min": 600, "20 min": 1200, "30 min": 1800, "1 h": 3600, "2 h": 7200, "6 h": 21_600, "12 h": 43_200}
    | {"1 d": 86_400, "2 d": 172_800, "7 d": 604_800, "30 d": 2_592_000}
)


@dataclass(frozen=True, slots=True)
class Flow:
    """Messages over time: by series, then by number of the step; a series is what is told apart in a plot.

    :param start: of step 0, seconds since the Unix epoch.
    :param step: its length, seconds.
    """

    start: float
    step: float
    counts: Mapping[str, Mapping[int, int]]


def flow(verdicts: DataFrame) -> Flow:
    """Answer the flow of judged messages by way: primary, diverted, syphoned; each message once a way."""
    way = F.when(F.col("route") == str(Route.BACKLOG), DIVERTED).otherwise(PRIMARY)
    accepted = verdicts.where(F.col("sent_at").isNotNull()).select(way.alias("series"), F.col("sent_at").alias("at"))
    moved = verdicts.where(F.col("moved_at").isNotNull()).select(
        F.lit(SYPHONED).alias("series"), F.col("moved_at").alias("at")
    )
    return over_time(accepted.unionByName(moved))


def over_time(moments: DataFrame) -> Flow:
    """Add up moments, in steps of at least a second.

    :param moments: columns ``series``, and ``at`` in seconds since the Unix epoch.
    """
    ends = moments.agg(F.min("at"), F.max("at")).first()
    if ends is None or ends[0] is None:
        return Flow(start=0.0, step=1.0, counts={})
    step = _step_for(ends[1] - ends[0])
    start = ends[0] // step * step
    counts: dict[str, dict[int, int]] = {}
    for row in moments.groupBy("series", F.floor((F.col("at") - start) / step).alias("slot")).count().collect():
        counts.setdefault(row["series"], {})[row["slot"]] = row["count"]
    return Flow(start=start, step=step, counts=counts)


def _step_for(seconds: float) -> float:
    """Answer the length of a step, seconds, of which so long a time takes at most :data:`STEPS` and one."""
    fitting = (float(step) for step in _STEP if seconds <= step * STEPS)
    return next(fitting, _STEP[-1] * float(-(-seconds // (_STEP[-1] * STEPS))))


def waits(verdicts: DataFrame) -> dict[str, int]:
    """Answer how many messages waited how long: by class, from the first that holds any to the last."""
    waited = verdicts.where(F.col("wait_seconds").isNotNull())
    rows = waited.groupBy(class_of("wait_seconds", WAITS).alias("number")).agg(F.count("*").alias("messages")).collect()
    held = {row["number"]: row["messages"] for row in rows}
    if not held:
        return {}
    names = class_names(WAITS)
    return {names[number]: held.get(number, 0) for number in range(min(held), max(held) + 1)}
