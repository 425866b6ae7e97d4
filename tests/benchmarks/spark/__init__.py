"""The group ``spark``: publishing compared with the bare SDK, and many messages through an outage on ``local[2]``.

``python -m tests.benchmarks spark --messages 1000000`` sends a million through the outage.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from tests.benchmarks.measure import Measure
from tests.benchmarks.spark import growth, publishing

__all__ = ["measures"]

_PUBLISHED: Final = 100_000
_DEFAULT: Final = 100_000


def measures(messages: int = _DEFAULT) -> Iterator[Measure]:
    """Measure every part of the group.

    :param messages: number of messages in the outage; a tenth of them is measured first, for the growth.
    """
    yield from publishing.measures(min(messages, _PUBLISHED))
    yield from growth.measures(messages)
