"""The group ``core``: paired namespaces beside the bare SDK."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks import core_draining, core_sending
from tests.benchmarks.measure import Measure

__all__ = ["measures"]


def measures() -> Iterator[Measure]:
    """Measure every part of the group."""
    yield from core_sending.measures()
    yield from core_draining.measures()
