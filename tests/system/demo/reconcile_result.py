"""Result of the last run of Spark's ``reconcile`` job."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ReconcileResult:
    """Totals of one reconciliation, in messages; duplicates are copies beyond the first."""

    delivered: int
    lost: int
    duplicates: int
    duplicates_predicted: int
    report: str  # path of the HTML report


def read_latest_result(output: Path) -> ReconcileResult:
    """Return the newest result below the jobs' output folder.

    :raises FileNotFoundError: no result exists.
    """
    files = sorted(output.rglob("reconcile/summary.json"), key=lambda file: file.stat().st_mtime)
    if not files:
        raise FileNotFoundError(f"there is no reconcile result below {output}")
    totals = json.loads(files[-1].read_text())["totals"]
    counts = {name: totals[name] for name in ("delivered", "lost", "duplicates", "duplicates_predicted")}
    return ReconcileResult(**counts, report=str(files[-1].with_name("report.html")))
