"""The HTML report of the profile job. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from servicebus_pair.spark.base.offsets import DEAD_LETTER, MAIN
from servicebus_pair.spark.report.formatting import format_bytes, format_duration, format_time, pluralize
from servicebus_pair.spark.report.html import bar_chart, page, section, table, tiles, verdict
from servicebus_pair.spark.report.svg_timeline import timeline
from servicebus_pair.spark.report.time_series import TimeSeries

_DESTINATION_COLUMNS: Final[Mapping[str, tuple[str, Callable[[Any], Any]]]] = {
    "destination": ("destination", str),
    "messages": ("messages", int),
    "bytes": ("size", format_bytes),
    "largest_bytes": ("largest", format_bytes),
    "oldest_seconds": ("oldest", format_duration),
    "median_seconds": ("median age", format_duration),
    "newest_seconds": ("newest", format_duration),
}
_REASON_COLUMNS: Final = ("destination", "reason", "messages", "example")
_MAX_AREAS: Final = 7


def render(summary: Mapping[str, Any], arrivals: TimeSeries) -> str:
    """Return the page.

    :param summary: content of ``summary.json``.
    :param arrivals: messages over their enqueue time, by destination.
    """
    waiting, dead = summary["messages"], summary["dead_letters"]
    queues = pluralize(len(summary["queues"]), "backlog queue")
    result = f"{pluralize(waiting, 'message waits', plural='messages wait')} in {queues}."
    dead_letters = pluralize(dead, "is a dead letter", plural="are dead letters")
    parts = [verdict(result, details=f"{dead_letters}; peeked at {format_time(summary['at'])} UTC."), _figures(summary)]
    if arrivals.counts:
        parts.append(section("Arrivals in the backlog, by destination", _arrivals(arrivals)))
    for sub_queue, title in ((MAIN, "Waiting"), (DEAD_LETTER, "Dead letters")):
        if any(row["subQueue"] == sub_queue for row in summary["destinations"]):
            parts += _sub_queue(summary, sub_queue, title)
    return page("Backlog", parts, heading="Backlog profile")


def _figures(summary: Mapping[str, Any]) -> str:
    rows = [row for row in summary["destinations"] if row["subQueue"] == MAIN]
    figures = {
        "waiting": summary["messages"],
        "size": format_bytes(sum(row["bytes"] for row in rows)),
        "destinations": len(rows),
        "oldest": format_duration(max((row["oldest_seconds"] for row in rows), default=None)) or "none",
        "dead letters": summary["dead_letters"],
    }
    return tiles(figures, bad=["dead letters"] if summary["dead_letters"] else [])


def _arrivals(arrivals: TimeSeries) -> str:
    """Plot the largest destinations as one area each, and the others together."""
    by_size = sorted(arrivals.counts, key=lambda name: (-sum(arrivals.counts[name].values()), name))
    series = {name: arrivals.counts[name] for name in by_size[:_MAX_AREAS]}
    others: dict[int, int] = {}
    for name in by_size[_MAX_AREAS:]:
        for slot, count in arrivals.counts[name].items():
            others[slot] = others.get(slot, 0) + count
    if others:
        series[f"{len(by_size) - _MAX_AREAS} others"] = others
    return timeline(series, start=arrivals.start, step=arrivals.step)


def _sub_queue(summary: Mapping[str, Any], sub_queue: str, title: str) -> list[str]:
    def of(name: str) -> list[Mapping[str, Any]]:
        return [row for row in summary[name] if row.get("subQueue", sub_queue) == sub_queue]

    parts = [section(title, _destinations(of("destinations")))]
    parts += ["<h3>By age</h3>", bar_chart({row["class"]: row["messages"] for row in of("ages")})]
    parts += ["<h3>By size</h3>", bar_chart({row["class"]: row["messages"] for row in of("sizes")})]
    if sub_queue == DEAD_LETTER:
        rows = ([row[name] for name in _REASON_COLUMNS] for row in summary["reasons"])
        parts += ["<h3>By reason</h3>", table(_REASON_COLUMNS, rows, text_columns=(0, 1, 3))]
    return parts


def _destinations(rows: Sequence[Mapping[str, Any]]) -> str:
    titles = [title for title, _ in _DESTINATION_COLUMNS.values()]
    return table(
        titles, ([formatter(row[name]) for name, (_, formatter) in _DESTINATION_COLUMNS.items()] for row in rows)
    )
