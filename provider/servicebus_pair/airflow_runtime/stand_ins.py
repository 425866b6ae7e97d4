"""Classes of Airflow's shared streams, before Airflow 3.3; :mod:`airflow_version` chooses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class AdvanceOutcome:
    """What became of the messages of one event, with what our streams use of it."""

    acked: int
    failed: int
    rejected: int = 0

    @property
    def is_clean(self) -> bool:
        """Whether all triggers took the event."""
        return self.acked > 0 and not self.failed and not self.rejected


@dataclass(frozen=True, slots=True)
class AdvanceItem:
    """What is acknowledged, and why."""

    broker_payload: Any
    outcome: AdvanceOutcome
