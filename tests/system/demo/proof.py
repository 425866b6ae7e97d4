"""What Spark's ``reconcile`` found, in the last of its reports."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Proof", "last_proof"]


@dataclass(frozen=True, slots=True)
class Proof:
    """Totals of one reconciliation. Counts are messages, but for duplicates: copies beyond the first."""

    delivered: int
    lost: int
    duplicates: int
    duplicates_predicted: int
    report: str  # the page for people


def last_proof(output: Path) -> Proof:
    """Return the newest proof below the folder that the jobs write to.

    :raises FileNotFoundError: there is none.
    """
    files = sorted(output.glob("*/reconcile/summary.json"), key=lambda file: file.stat().st_mtime)
    if not files:
        raise FileNotFoundError(f"no reconciliation below {output}")
    totals = json.loads(files[-1].read_text())["totals"]
    counts = {name: totals[name] for name in ("delivered", "lost", "duplicates", "duplicates_predicted")}
    return Proof(**counts, report=str(files[-1].with_name("report.html")))
