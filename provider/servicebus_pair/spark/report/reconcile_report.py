"""The HTML report of the reconcile job. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from servicebus_pair.core.ledger import Judgement
from servicebus_pair.spark.report.formatting import format_duration, format_time, pluralize
from servicebus_pair.spark.report.html import bar_chart, escape, page, paragraphs, section, table, tiles, verdict
from servicebus_pair.spark.report.svg_timeline import Highlight, timeline
from servicebus_pair.spark.report.time_series import DIVERTED, PRIMARY, SYPHONED, TimeSeries

_COUNTS: Final = {
    "sent": "sent",
    "delivered": "delivered",
    "consumed": "consumed",
    "spooled": "spooled",
    "lost": "lost",
    "altered": "altered",
    "primary": "direct",
    "diverted": "diverted",
    "syphoned": "syphoned",
    "waiting": "waiting",
    "dead_lettered": "dead letters",
    "unrecorded": "not in ledger",
    "duplicates": "duplicates",
    "duplicates_predicted": "predicted",
    "out_of_order": "out of order",
}
_FIGURES: Final = (
    *("sent", "delivered", "consumed", "lost", "diverted", "waiting", "dead_lettered", "duplicates", "out_of_order"),
)
_INCIDENT_COUNTS: Final = tuple(name for name in _COUNTS if name not in ("sent", "primary", "unrecorded"))
_WAIT_COLUMNS: Final = {
    "wait_median_seconds": "median wait",
    "wait_p95_seconds": "95th percentile",
    "longest_wait_seconds": "longest wait",
}
_ROUTES: Final = {
    PRIMARY: "sent to the primary",
    DIVERTED: "diverted to the backlog",
    SYPHONED: "syphoned to the primary",
}


def render(summary: Mapping[str, Any], flow: TimeSeries, waits: Mapping[str, int]) -> str:
    """Return the page.

    :param summary: content of ``summary.json``.
    :param waits: message counts by wait.
    """
    run = "all runs" if summary["run"] is None else f"run {summary['run']}"
    return page(
        "Reconciliation",
        [
            _verdict(summary),
            _figures(summary["totals"]),
            section("Messages over time", _chart(flow, summary["incidents"])),
            _incidents(summary["incidents"]),
            _wait_section(summary, waits),
            section("By entity", _entities(summary)),
            _cost(summary["cost"]),
            *_examples(summary),
            section("Notes", paragraphs(_notes(summary))),
        ],
        heading=f"Reconciliation of {run}",
    )


def _verdict(summary: Mapping[str, Any]) -> str:
    totals, reasons = summary["totals"], summary["reasons"]
    sent, lost = totals["sent"], totals["lost"] or totals["altered"]
    labels = {
        "delivered": "delivered",
        "waiting": "waiting in the backlog",
        "dead_lettered": "dead-lettered",
        "spooled": "in a spool",
        "consumed": "accepted by the primary, and consumed or expired since",
    }
    outcomes = [f"{totals[name]:,} {label}" for name, label in labels.items() if totals[name]]
    if totals["unrecorded"]:
        outcomes.append(f"{totals['unrecorded']:,} more not in the ledger")
    details = f"Of {pluralize(sent, 'message')} sent: {', '.join(outcomes) or 'none found'}."
    fate = "lost" if totals["lost"] else "altered"
    match summary["judgement"]:
        case Judgement.PROVEN:
            return verdict("Nothing is lost.", details=details, kind="good")
        case Judgement.LOST:
            text = f"{pluralize(lost, 'message is', plural='messages are')} {fate}."
            return verdict(text, details=details, kind="bad") + paragraphs(reasons)
    text = "Not proven: the messages that were judged are not lost, but others were not judged."
    return verdict(text if sent else "Not proven: no message was judged.", details=details, kind="open") + paragraphs(
        reasons
    )


def _figures(totals: Mapping[str, Any]) -> str:
    longest = format_duration(totals["longest_wait_seconds"]) if totals["waited"] else "none"
    figures = {_COUNTS[name]: totals[name] for name in _FIGURES} | {"longest wait": longest}
    return tiles(figures, bad=["lost"] if totals["lost"] else [])


def _chart(flow: TimeSeries, incidents: Sequence[Mapping[str, Any]]) -> str:
    if not flow.counts:
        return "<p>The ledger has no records of these entities.</p>"
    return timeline(
        {label: flow.counts[route] for route, label in _ROUTES.items() if route in flow.counts},
        start=flow.start,
        step=flow.step,
        highlights=[_highlight(each) for each in incidents],
        highlight_label="outage: messages of an entity were diverted",
    )


def _highlight(incident: Mapping[str, Any]) -> Highlight:
    began, ended = incident["began"], incident["ended"]
    return Highlight(began, ended, f"{incident['entity']}: diverted from {format_time(began)} to {format_time(ended)}")


def _incidents(incidents: Sequence[Mapping[str, Any]]) -> str:
    if not incidents:
        return section("Incidents", description="No message was diverted.")
    columns = [
        "entity",
        "first diverted (UTC)",
        "last diverted",
        "backlog empty at",
        *map(_COUNTS.__getitem__, _INCIDENT_COUNTS),
    ]
    rows = (
        [
            each["entity"],
            *(format_time(each[name]) for name in ("began", "ended", "home_at")),
            *(each[name] for name in _INCIDENT_COUNTS),
            *_wait_cells(each),
        ]
        for each in sorted(incidents, key=itemgetter("began", "entity"))
    )
    description = "The outcome of the messages first diverted in each incident. The ledger does not record the cause."
    return section(
        "Incidents", table([*columns, *_WAIT_COLUMNS.values()], rows, text_columns=range(4)), description=description
    )


def _wait_section(summary: Mapping[str, Any], waits: Mapping[str, int]) -> str:
    if not waits:
        return section("Waits", description="No message was moved from the backlog.")
    totals = summary["totals"]
    average = totals["wait_seconds"] / totals["waited"]
    description = (
        f"From the backlog's acceptance to the primary's, {pluralize(totals['waited'], 'message')} waited "
        f"{format_duration(average)} on average, and {format_duration(totals['longest_wait_seconds'])} at most."
    )
    return section("Waits", bar_chart(waits), description=description)


def _entities(summary: Mapping[str, Any]) -> str:
    rows = {"all": summary["totals"], **summary["entities"]}
    body = ([name, *(values[column] for column in _COUNTS), *_wait_cells(values)] for name, values in rows.items())
    return table(["entity", *_COUNTS.values(), *_WAIT_COLUMNS.values()], body) + _order(summary["totals"])


def _order(totals: Mapping[str, Any]) -> str:
    if not totals["sessions"]:
        return paragraphs(["These queues contain no messages with sessions."])
    text = (
        f"Of {totals['session_messages']:,} messages in {totals['sessions']:,} sessions, "
        f"{totals['out_of_order']:,} arrived after a later message of their session, "
        f"in {pluralize(totals['sessions_out_of_order'], 'session')}."
    )
    return paragraphs([text])


def _wait_cells(values: Mapping[str, Any]) -> list[str]:
    # The row for all entities has no percentiles, and a row without waits has no longest wait.
    return [format_duration(values.get(name)) if values["waited"] else "" for name in _WAIT_COLUMNS]


def _cost(cost: Mapping[str, Any]) -> str:
    description = (
        f"{pluralize(cost['total'], 'operation')} by the ledger, a lower bound: {cost['amount']} {cost['currency']} "
        f"at the list prices of {cost['prices_as_of']}, if nothing else is billed in the month. "
        "The cost job adds metered operations."
    )
    return section(
        "Cost",
        bar_chart({name.replace("_", " "): count for name, count in cost["operations"].items()}),
        description=description,
    )


def _examples(summary: Mapping[str, Any]) -> Iterator[str]:
    for kind, messages in summary["examples"].items():
        if messages:
            items = "".join(f"<li><code>{escape(message)}</code></li>" for message in messages)
            yield section(f"Examples: {kind}", f"<ul>{items}</ul>")


def _notes(summary: Mapping[str, Any]) -> Iterator[str]:
    ledger = summary["ledger"]
    yield f"The ledger holds {ledger['records']:,} records and {pluralize(ledger['torn'], 'incomplete line')}."
    if summary["pings"]:
        yield f"The service has kept {pluralize(summary['pings'], 'ping')}."
    for place, count in summary["unreadable"].items():
        yield f"{pluralize(count, 'message')} in {place} cannot be decoded, so nothing else is known."
    if summary["unaddressed"]:
        yield f"{pluralize(summary['unaddressed'], 'message')} in the backlog without a destination entity."
    if summary["absent_backlog_queues"]:
        yield f"Backlog queues that do not exist: {', '.join(summary['absent_backlog_queues'])}."
    if summary["unexamined"]:
        yield f"Not examined, because not selected: {', '.join(summary['unexamined'])}."
    if summary["strangers"]:
        yield f"The backlog also holds messages for {', '.join(summary['strangers'])}."
