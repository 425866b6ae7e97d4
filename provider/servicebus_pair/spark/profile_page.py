"""The profile of the backlog for people: one HTML file that needs nothing else. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from servicebus_pair.spark.cursors import DEAD_LETTER, MAIN
from servicebus_pair.spark.drawing import bars, lines, notes, page, table

__all__ = ["Arrivals", "render"]

_COLUMNS: Final = {
    "destination": "destination",
    "messages": "messages",
    "bytes": "bytes",
    "largest_bytes": "largest, bytes",
    "oldest_seconds": "oldest, s",
    "median_seconds": "median age, s",
    "newest_seconds": "newest, s",
}
_REASONS: Final = {"destination": "destination", "reason": "reason", "messages": "messages", "example": "such as"}
_MOST_LINES: Final = 8


@dataclass(frozen=True, slots=True)
class Arrivals:
    """When messages reached the backlog: by destination, then by number of the step.

    :param step: its length, seconds.
    """

    step: float
    counts: Mapping[str, Mapping[int, int]]


def render(summary: Mapping[str, Any], arrivals: Arrivals) -> str:
    """Answer the page.

    :param summary: what ``summary.json`` will hold.
    """
    at = datetime.fromtimestamp(summary["at"], UTC)
    said = (
        f"{summary['messages']:,} messages wait in {len(summary['queues'])} backlog queues, and "
        f"{summary['dead_letters']:,} are dead letters, seen by peek at {at:%Y-%m-%d %H:%M:%S} UTC."
    )
    parts = [notes([said])]
    if arrivals.counts:
        parts += ["<h2>Arrivals in the backlog per second, by destination</h2>", _arrivals(arrivals)]
    for sub_queue, title in ((MAIN, "Waiting"), (DEAD_LETTER, "Dead letters")):
        if any(row["subQueue"] == sub_queue for row in summary["destinations"]):
            parts += _sub_queue(summary, sub_queue, title)
    return page("Backlog", parts, heading="What sits in the backlog")


def _arrivals(arrivals: Arrivals) -> str:
    """The busiest destinations, a line each; the others together."""
    by_size = sorted(arrivals.counts, key=lambda name: (-sum(arrivals.counts[name].values()), name))
    series = {name: arrivals.counts[name] for name in by_size[:_MOST_LINES]}
    others: dict[int, int] = {}
    for name in by_size[_MOST_LINES:]:
        for slot, count in arrivals.counts[name].items():
            others[slot] = others.get(slot, 0) + count
    if others:
        series[f"{len(by_size) - _MOST_LINES} others"] = others
    return lines(series, step=arrivals.step)


def _sub_queue(summary: Mapping[str, Any], sub_queue: str, title: str) -> list[str]:
    def of(name: str) -> list[Mapping[str, Any]]:
        return [row for row in summary[name] if row.get("subQueue", sub_queue) == sub_queue]

    parts = [f"<h2>{title}</h2>", _rows(_COLUMNS, of("destinations"))]
    parts += ["<h3>By age</h3>", bars({row["class"]: row["messages"] for row in of("ages")})]
    parts += ["<h3>By size</h3>", bars({row["class"]: row["messages"] for row in of("sizes")})]
    if sub_queue == DEAD_LETTER:
        parts += ["<h3>By reason</h3>", _rows(_REASONS, summary["reasons"])]
    return parts


def _rows(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> str:
    return table(list(columns.values()), ([row[name] for name in columns] for row in rows))
