"""The group ``airflow``: import time of DAG files, and the load of hundreds of deferred sensors on a triggerer."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks.airflow import deferred_sensors, import_time
from tests.benchmarks.measure import Measure


def measures() -> Iterator[Measure]:
    yield from import_time.measures()
    yield from deferred_sensors.measures()
