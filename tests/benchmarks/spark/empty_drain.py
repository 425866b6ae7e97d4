"""A drain that finds nothing, beside an empty ledger and beside one with many old records: it reads its own run."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from time import perf_counter
from typing import Final

from pyspark.sql import SparkSession

from servicebus_pair.spark.transfer.draining import drain
from tests.benchmarks.measure import Measure
from tests.benchmarks.spark.namespaces import Namespaces, namespaces
from tests.benchmarks.spark.reconciling import FILES, TENTH, plant
from tests.benchmarks.spark.session import session

_CORES: Final = 2
_DRAINS: Final = 5
_MAX_GROWTH: Final = 1.15


def measures(count: int) -> Iterator[Measure]:
    """Drain an empty backlog beside an empty ledger, and beside one with ``count`` old messages."""
    count -= count % (FILES * TENTH)
    with namespaces() as pair, session(cores=_CORES) as spark:
        _seconds(spark, pair)  # warms up
        empty = _seconds(spark, pair)
        plant(spark, pair.home / "ledger", count)
        full = _seconds(spark, pair)
    yield Measure(name="drain of an empty backlog, empty ledger", value=empty, unit="s")
    yield Measure(name=f"drain of an empty backlog, {count} old messages in the ledger", value=full, unit="s")
    yield Measure(
        name="drain of an empty backlog, with old messages / without",
        value=full / empty,
        unit="ratio",
        at_most=_MAX_GROWTH,
    )


def _seconds(spark: SparkSession, pair: Namespaces) -> float:
    times = []
    for number in range(_DRAINS):
        started = perf_counter()
        drain(spark, pair_reference=pair.reference, ledger=str(pair.home / "ledger"), run=f"empty-{number}")
        times.append(perf_counter() - started)
    return median(times)
