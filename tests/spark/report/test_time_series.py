"""Events are counted in round steps, and waits in bins."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from servicebus_pair.spark.report.time_series import TimeSeries, count_over_time, wait_histogram
from tests.spark.support.report_pages import NOON


@pytest.mark.parametrize(("seconds", "step"), [(0, 1.0), (240, 1.0), (241, 2.0), (86_400, 600.0), (10**9, 4_233_600.0)])
def test_steps_are_round_and_at_most_241(seconds: int, step: float, spark: SparkSession):
    times = [("a", NOON + 1), ("b", NOON + 1 + seconds)]
    series = count_over_time(spark.createDataFrame(times, "series string, at double"))
    start = (NOON + 1) // step * step
    last = int((NOON + 1 + seconds - start) // step)
    assert series == TimeSeries(start, step, {"a": {0: 1}, "b": {last: 1}})
    assert last <= 240


def test_waits_are_counted_from_the_first_to_the_last_bin(spark: SparkSession):
    waits = spark.createDataFrame([(0.5,), (1.0,), (7.0,), (None,)], "wait_seconds double")
    assert wait_histogram(waits) == {"under 1 s": 1, "1 s to 2 s": 1, "2 s to 5 s": 0, "5 s to 10 s": 1}
