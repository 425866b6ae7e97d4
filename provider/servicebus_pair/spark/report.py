"""The reconciliation for people: one HTML file that needs nothing else. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, Final

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
_COLOURS: Final = {"primary": "#2b6cb0", "diverted": "#c05621", "syphoned": "#2f855a"}
_WIDTH: Final = 960
_HEIGHT: Final = 220
_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:62rem;color:#1a202c}"
    "table{border-collapse:collapse;margin:1rem 0}th,td{padding:.3rem .6rem;border-bottom:1px solid #cbd5e0;"
    "text-align:right}th:first-child,td:first-child{text-align:left}.bad{color:#c53030}.good{color:#276749}"
    "svg{background:#f7fafc;width:100%}"
)


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
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Reconciliation</title>',
            f"<style>{_STYLE}</style></head><body><h1>Reconciliation of {escape(run)}</h1>",
            verdict,
            _table(summary),
            "<h2>Messages per second, by way</h2>",
            _chart(flow),
            _examples(summary["examples"]),
            _notes(summary),
            "</body></html>\n",
        ]
    )


def _table(summary: Mapping[str, Any]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in _COLUMNS.values())
    rows = {**summary["entities"], "all": summary["totals"]}
    body = "".join(
        f"<tr><td>{escape(name)}</td>{''.join(_cell(values[column]) for column in _COLUMNS)}</tr>"
        for name, values in rows.items()
    )
    return f"<table><tr><th>entity</th>{head}</tr>{body}</table>"


def _cell(value: Any) -> str:
    return f"<td>{value:,.1f}</td>" if isinstance(value, float) else f"<td>{value:,}</td>"


def _chart(flow: Flow) -> str:
    if not flow.counts:
        return "<p>The ledger is empty.</p>"
    steps = 1 + max(max(slots) for slots in flow.counts.values())
    highest = max(max(slots.values()) for slots in flow.counts.values())
    lines = [_line(flow, way, steps=steps, highest=highest) for way in flow.counts]
    scale = (
        f'<text x="4" y="14" font-size="12">{highest / flow.step:,.0f} a second</text>'
        f'<text x="{_WIDTH - 4}" y="{_HEIGHT - 4}" font-size="12" text-anchor="end">{steps * flow.step:,.0f} s</text>'
    )
    legend = " ".join(f'<span style="color:{_COLOURS[way]}">&#9632; {way}</span>' for way in flow.counts)
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(lines)}{scale}</svg><p>{legend}</p>'


def _line(flow: Flow, way: str, *, steps: int, highest: int) -> str:
    slots = flow.counts[way]
    points = " ".join(
        f"{_WIDTH * slot / max(1, steps - 1):.1f},{_HEIGHT * (1 - 0.9 * slots.get(slot, 0) / highest):.1f}"
        for slot in range(steps)
    )
    return f'<polyline fill="none" stroke="{_COLOURS[way]}" stroke-width="2" points="{points}"/>'


def _examples(examples: Mapping[str, list[str]]) -> str:
    parts = []
    for kind, messages in examples.items():
        if messages:
            items = "".join(f"<li><code>{escape(message)}</code></li>" for message in messages)
            parts.append(f"<h2>Some: {escape(kind)}</h2><ul>{items}</ul>")
    return "".join(parts)


def _notes(summary: Mapping[str, Any]) -> str:
    ledger = summary["ledger"]
    notes = [f"The ledger holds {ledger['records']:,} records and {ledger['torn']:,} unfinished lines."]
    if summary["pings"]:
        notes.append(f"The service keeps {summary['pings']:,} pings.")
    if summary["absent_backlog_queues"]:
        notes.append(f"Backlog queues that do not exist: {', '.join(summary['absent_backlog_queues'])}.")
    if summary["unexamined"]:
        notes.append(f"Nothing is said of entities that were not named: {', '.join(summary['unexamined'])}.")
    return "<h2>Notes</h2>" + "".join(f"<p>{escape(note)}</p>" for note in notes)
