"""The group ``core``: paired namespaces compared with the bare SDK."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks.core import drain, mover, send, spool
from tests.benchmarks.measure import Measure


def measures() -> Iterator[Measure]:
    yield from send.measures()
    yield from mover.measures()
    yield from drain.measures()
    yield from spool.measures()
