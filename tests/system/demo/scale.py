"""How much a demo publishes, and how long it may take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["MONTH", "YEAR", "Scale"]


UNREACHED = 20_000
"""Messages per second that two cores never come to."""


@dataclass(frozen=True, slots=True)
class Scale:
    """The size of one demo.

    :ivar month: of 2013; none: the whole year.
    :ivar rate: messages per second.
    :ivar in_spark: the backlog is brought home by Spark, and by nobody else.
    :ivar outage_seconds: the least that the primary is dead.
    :ivar published_seconds: until a third is accepted.
    :ivar finished_seconds: from the primary's return to the end of all DAGs.
    """

    month: int | None
    rate: int
    in_spark: bool
    outage_seconds: float
    published_seconds: float
    finished_seconds: float

    @property
    def pace(self) -> str:
        """How fast it publishes, in words."""
        return "as fast as it goes" if self.rate >= UNREACHED else f"{self.rate} a second"

    @property
    def form(self) -> dict[str, Any]:
        """What the form of the pipeline is filled in with."""
        return {"month": self.month, "rate": self.rate}


# At this rate an outage of half a minute falls into publishing.
MONTH = Scale(month=1, rate=300, in_spark=False, outage_seconds=30.0, published_seconds=180.0, finished_seconds=600.0)
YEAR = Scale(
    month=None, rate=UNREACHED, in_spark=True, outage_seconds=10.0, published_seconds=600.0, finished_seconds=1_800.0
)
