"""The group ``spark``: publishing against the bare SDK, reading, draining nothing, and many messages through an outage.

``python -m tests.benchmarks spark --messages 1000000`` reads a million, and sends a million through the outage.
:mod:`tests.benchmarks.spark.reconciling` is a program of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.benchmarks.measure import Measure
from tests.benchmarks.spark import empty_drain, growth, publishing, reading

_PUBLISHED: Final = 100_000
_DEFAULT: Final = 100_000


def measures(messages: int = _DEFAULT) -> Iterator[Measure]:
    """Measure every part of the group.

    :param messages: number of messages that are read, and that go through the outage; a tenth of the latter is measured
        first, for the growth.
    """
    yield from publishing.measures(min(messages, _PUBLISHED))
    yield from reading.measures(messages)
    yield from empty_drain.measures(messages)
    yield from growth.measures(messages)
