"""The group ``airflow``: what parsing a DAG file costs, and what hundreds of waiting sensors do to a triggerer."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks.airflow import importing, waiting
from tests.benchmarks.measure import Measure

__all__ = ["measures"]


def measures() -> Iterator[Measure]:
    """Measure every part of the group."""
    yield from importing.measures()
    yield from waiting.measures()
