"""The benchmark through an outage, at small scale: published while the primary is down, drained, nothing lost."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.benchmarks.spark.namespaces import namespaces
from tests.benchmarks.spark.outage import ProgressMonitor, run_through_outage

COUNT = 3_000


@pytest.mark.slow
@pytest.mark.timeout(300)  # Spark's first jobs take a minute where the machine has much else to do
def test_benchmark_through_an_outage(spark: SparkSession):
    with namespaces() as pair:
        result = run_through_outage(spark, pair, ProgressMonitor(pair), COUNT, run="outage")
    assert (result.diverted, result.moved, result.delivered, result.lost) == (COUNT, COUNT, COUNT, 0)
    assert list(result.seconds) == ["publish", "drain", "reconcile"]
