"""The reconciliation for people: one HTML file that needs nothing else. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from servicebus_pair.spark.drawing import lines, notes, page, table

__all__ = ["Flow", "render"]

_COLUMNS: Final = {
    "sent": "sent",
    "primary": "straight to the primary",
    "diverted": "diverted",
    "syphoned": "syphoned",
    "delivered": "delivered",
    "waiting": "waiting in the backlog",
    "dead_lettered": "dead-lettered",
    "lost": "lost",
    "unrecorded": "not in the ledger",
    "duplicates": "duplicates",
    "duplicates_predicted": "of these predicted",
    "longest_wait_seconds": "longest wait, s",
}


@dataclass(frozen=True, slots=True)
class Flow:
    """Messages over time: by way (primary, diverted, syphoned), then by number of the step.

    :param start: of step 0, seconds since the Unix epoch.
    :param step: its length, seconds.
    """

    start: float
    step: float
    counts: Mapping[str, Mapping[int, int]]


def render(summary: Mapping[str, Any], flow: Flow) -> str:
    """Answer the page.

    :param summary: what ``summary.json`` will hold.
    """
    lost = summary["totals"]["lost"]
    verdict = f'<p class="bad">{lost} messages are lost.</p>' if lost else '<p class="good">Nothing is lost.</p>'
    run = "all runs" if summary["run"] is None else f"run {summary['run']}"
    return page(
        "Reconciliation",
        [
            verdict,
            _table(summary),
            "<h2>Messages per second, by way</h2>",
            _chart(flow),
            *_examples(summary),
            _notes(summary),
        ],
        heading=f"Reconciliation of {run}",
    )


def _table(summary: Mapping[str, Any]) -> str:
    rows = {**summary["entities"], "all": summary["totals"]}
    body = ([name, *(values[column] for column in _COLUMNS)] for name, values in rows.items())
    return table(["entity", *_COLUMNS.values()], body)


def _chart(flow: Flow) -> str:
    return lines(flow.counts, step=flow.step) if flow.counts else "<p>The ledger is empty.</p>"


def _examples(summary: Mapping[str, Any]) -> Iterator[str]:
    for kind, messages in summary["examples"].items():
        if messages:
            items = "".join(f"<li><code>{escape(message)}</code></li>" for message in messages)
            yield f"<h2>Some: {escape(kind)}</h2><ul>{items}</ul>"


def _notes(summary: Mapping[str, Any]) -> str:
    ledger = summary["ledger"]
    said = [f"The ledger holds {ledger['records']:,} records and {ledger['torn']:,} unfinished lines."]
    if summary["pings"]:
        said.append(f"The service keeps {summary['pings']:,} pings.")
    if summary["absent_backlog_queues"]:
        said.append(f"Backlog queues that do not exist: {', '.join(summary['absent_backlog_queues'])}.")
    if summary["unexamined"]:
        said.append(f"Nothing is said of entities that were not named: {', '.join(summary['unexamined'])}.")
    return "<h2>Notes</h2>" + notes(said)
