"""The benchmark through an outage, at small scale: published to a dead primary, drained, nothing lost."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.benchmarks.spark.namespaces import namespaces
from tests.benchmarks.spark.through import Watch, go_through

COUNT = 3_000


@pytest.mark.slow
@pytest.mark.timeout(300)  # Spark's first jobs take a minute where the machine has much else to do
def test_benchmark_through_an_outage(spark: SparkSession):
    with namespaces() as pair:
        passage = go_through(spark, pair, Watch(pair), COUNT, run="outage")
    assert (passage.diverted, passage.moved, passage.delivered, passage.lost) == (COUNT, COUNT, COUNT, 0)
    assert list(passage.seconds) == ["publish", "drain", "reconcile"]
