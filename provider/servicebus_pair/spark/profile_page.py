"""The profile of the backlog for people: one HTML file that needs nothing else. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from servicebus_pair.spark.cursors import DEAD_LETTER, MAIN
from servicebus_pair.spark.drawing import bars, page, section, table, tiles, verdict
from servicebus_pair.spark.plotting import timeline
from servicebus_pair.spark.quantities import count_of, duration, moment, size
from servicebus_pair.spark.timing import Flow

__all__ = ["render"]

_SHOWN: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "destination": ("destination", str),
    "messages": ("messages", int),
    "bytes": ("size", size),
    "largest_bytes": ("largest", size),
    "oldest_seconds": ("oldest", duration),
    "median_seconds": ("median age", duration),
    "newest_seconds": ("newest", duration),
}
_REASONS: Final = {"destination": "destination", "reason": "reason", "messages": "messages", "example": "such as"}
_MOST_AREAS: Final = 7


def render(summary: Mapping[str, Any], arrivals: Flow) -> str:
    """Answer the page.

    :param summary: what ``summary.json`` will hold.
    :param arrivals: when messages reached the backlog, by destination.
    """
    waiting, dead = summary["messages"], summary["dead_letters"]
    queues = count_of(len(summary["queues"]), "backlog queue")
    said = f"{count_of(waiting, 'message waits', plural='messages wait')} in {queues}."
    dying = count_of(dead, "is a dead letter", plural="are dead letters")
    parts = [verdict(said, more=f"{dying}; seen by peek at {moment(summary['at'])} UTC."), _figures(summary)]
    if arrivals.counts:
        parts.append(section("Arrivals in the backlog, by destination", _arrivals(arrivals)))
    for sub_queue, title in ((MAIN, "Waiting"), (DEAD_LETTER, "Dead letters")):
        if any(row["subQueue"] == sub_queue for row in summary["destinations"]):
            parts += _sub_queue(summary, sub_queue, title)
    return page("Backlog", parts, heading="What sits in the backlog")


def _figures(summary: Mapping[str, Any]) -> str:
    rows = [row for row in summary["destinations"] if row["subQueue"] == MAIN]
    figures = {
        "waiting": summary["messages"],
        "size": size(sum(row["bytes"] for row in rows)),
        "destinations": len(rows),
        "oldest": duration(max((row["oldest_seconds"] for row in rows), default=None)) or "none",
        "dead letters": summary["dead_letters"],
    }
    return tiles(figures, bad=["dead letters"] if summary["dead_letters"] else [])


def _arrivals(arrivals: Flow) -> str:
    """The busiest destinations, an area each; the others together."""
    by_size = sorted(arrivals.counts, key=lambda name: (-sum(arrivals.counts[name].values()), name))
    series = {name: arrivals.counts[name] for name in by_size[:_MOST_AREAS]}
    others: dict[int, int] = {}
    for name in by_size[_MOST_AREAS:]:
        for slot, count in arrivals.counts[name].items():
            others[slot] = others.get(slot, 0) + count
    if others:
        series[f"{len(by_size) - _MOST_AREAS} others"] = others
    return timeline(series, start=arrivals.start, step=arrivals.step)


def _sub_queue(summary: Mapping[str, Any], sub_queue: str, title: str) -> list[str]:
    def of(name: str) -> list[Mapping[str, Any]]:
        return [row for row in summary[name] if row.get("subQueue", sub_queue) == sub_queue]

    parts = [section(title, _destinations(of("destinations")))]
    parts += ["<h3>By age</h3>", bars({row["class"]: row["messages"] for row in of("ages")})]
    parts += ["<h3>By size</h3>", bars({row["class"]: row["messages"] for row in of("sizes")})]
    if sub_queue == DEAD_LETTER:
        rows = ([row[name] for name in _REASONS] for row in summary["reasons"])
        parts += ["<h3>By reason</h3>", table(list(_REASONS.values()), rows, texts=(0, 1, 3))]
    return parts


def _destinations(rows: Sequence[Mapping[str, Any]]) -> str:
    titles = [title for title, _ in _SHOWN.values()]
    return table(titles, ([shown(row[name]) for name, (_, shown) in _SHOWN.items()] for row in rows))
