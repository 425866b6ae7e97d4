"""Size and time limits of a demo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Messages per second, more than two cores can publish.
UNLIMITED_RATE = 20_000


@dataclass(frozen=True, slots=True)
class Scale:
    """The size of one demo.

    :ivar month: of 2013; ``None`` for the whole year.
    :ivar rate: messages per second.
    :ivar in_spark: only Spark drains the backlog.
    :ivar outage_seconds: minimum duration of the outage.
    :ivar secondary_seconds: how long the secondary is down, too; 0 for never.
    :ivar publish_timeout: seconds until a third of the messages is accepted.
    :ivar finish_timeout: seconds from the restart of the primary to the end of all DAG runs.
    """

    month: int | None
    rate: int
    in_spark: bool
    outage_seconds: float
    secondary_seconds: float
    publish_timeout: float
    finish_timeout: float

    @property
    def pace(self) -> str:
        return "as fast as possible" if self.rate >= UNLIMITED_RATE else f"at {self.rate} a second"

    @property
    def conf(self) -> dict[str, Any]:
        return {"month": self.month, "rate": self.rate}


# At this rate publishing takes longer than the outage of half a minute.
MONTH = Scale(
    month=1,
    rate=400,
    in_spark=False,
    outage_seconds=30.0,
    secondary_seconds=6.0,
    publish_timeout=180.0,
    finish_timeout=600.0,
)
YEAR = Scale(
    month=None,
    rate=UNLIMITED_RATE,
    in_spark=True,
    outage_seconds=10.0,
    # Spark drains the backlog, and not the spool.
    secondary_seconds=0.0,
    publish_timeout=600.0,
    finish_timeout=1_800.0,
)
