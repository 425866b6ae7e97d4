"""The reconciliation for people: one HTML file that needs nothing else. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from operator import itemgetter
from typing import Any, Final

from servicebus_pair.spark.drawing import bars, notes, page, section, table, tiles, verdict
from servicebus_pair.spark.plotting import Shade, timeline
from servicebus_pair.spark.quantities import count_of, duration, moment
from servicebus_pair.spark.timing import DIVERTED, PRIMARY, SYPHONED, Flow

__all__ = ["render"]

_COUNTS: Final = {
    "sent": "sent",
    "delivered": "delivered",
    "lost": "lost",
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
_INCIDENT_COUNTS: Final = tuple(name for name in _COUNTS if name not in ("sent", "primary", "unrecorded"))
_WAITS: Final = {
    "wait_median_seconds": "median wait",
    "wait_p95_seconds": "95% waited at most",
    "longest_wait_seconds": "longest wait",
}
_WAYS: Final = {
    PRIMARY: "straight to the primary",
    DIVERTED: "diverted to the backlog",
    SYPHONED: "syphoned to the primary",
}


def render(summary: Mapping[str, Any], flow: Flow, waits: Mapping[str, int]) -> str:
    """Answer the page.

    :param summary: what ``summary.json`` will hold.
    :param waits: how many messages waited how long, by class.
    """
    run = "all runs" if summary["run"] is None else f"run {summary['run']}"
    return page(
        "Reconciliation",
        [
            _verdict(summary["totals"]),
            _figures(summary["totals"]),
            section("Messages over time", _chart(flow, summary["incidents"])),
            _incidents(summary["incidents"]),
            _waited(summary, waits),
            section("By entity", _entities(summary)),
            _cost(summary["cost"]),
            *_examples(summary),
            section("Notes", notes(_said(summary))),
        ],
        heading=f"Reconciliation of {run}",
    )


def _verdict(totals: Mapping[str, Any]) -> str:
    if not totals["messages"]:
        return verdict("There is nothing to judge:", more="neither ledger nor queues know a message of these entities.")
    sent, lost = totals["sent"], totals["lost"]
    rest = {"delivered": "delivered", "waiting": "waiting in the backlog", "dead_lettered": "dead-lettered"}
    became = [f"{totals[name]:,} {said}" for name, said in rest.items() if totals[name]]
    if totals["unrecorded"]:
        became.append(f"{totals['unrecorded']:,} more not in the ledger")
    more = f"Of {count_of(sent, 'message')} sent: {', '.join(became) or 'none is found'}."
    if not lost:
        return verdict("Nothing is lost.", more=more, good=True)
    return verdict(f"{count_of(lost, 'message is', plural='messages are')} lost.", more=more, good=False)


def _figures(totals: Mapping[str, Any]) -> str:
    figures = {
        "sent": totals["sent"],
        "delivered": totals["delivered"],
        "lost": totals["lost"],
        "diverted": totals["diverted"],
        "waiting": totals["waiting"],
        "dead letters": totals["dead_lettered"],
        "duplicates": totals["duplicates"],
        "out of order": totals["out_of_order"],
        "longest wait": duration(totals["longest_wait_seconds"]) if totals["waited"] else "none",
    }
    return tiles(figures, bad=["lost"] if totals["lost"] else [])


def _chart(flow: Flow, incidents: Sequence[Mapping[str, Any]]) -> str:
    if not flow.counts:
        return "<p>The ledger tells of no message of these entities.</p>"
    return timeline(
        {said: flow.counts[way] for way, said in _WAYS.items() if way in flow.counts},
        start=flow.start,
        step=flow.step,
        shades=[_shade(each) for each in incidents],
        shaded="outage: sends of an entity were diverted",
    )


def _shade(incident: Mapping[str, Any]) -> Shade:
    began, ended = incident["began"], incident["ended"]
    return Shade(began, ended, f"{incident['entity']}: diverted from {moment(began)} to {moment(ended)}")


def _incidents(incidents: Sequence[Mapping[str, Any]]) -> str:
    if not incidents:
        return section("Incidents", said="No message of these was diverted.")
    columns = [
        "entity",
        "first diverted (UTC)",
        "last diverted",
        "home at",
        *map(_COUNTS.__getitem__, _INCIDENT_COUNTS),
    ]
    rows = (
        [
            each["entity"],
            *(moment(each[name]) for name in ("began", "ended", "home_at")),
            *(each[name] for name in _INCIDENT_COUNTS),
            *_wait_cells(each),
        ]
        for each in sorted(incidents, key=itemgetter("began", "entity"))
    )
    said = "What became of the messages that were first diverted in each; a ledger does not know what caused it."
    return section("Incidents", table([*columns, *_WAITS.values()], rows, texts=range(4)), said=said)


def _waited(summary: Mapping[str, Any], waits: Mapping[str, int]) -> str:
    if not waits:
        return section("Waits", said="No message has come home through the backlog.")
    totals = summary["totals"]
    average = totals["wait_seconds"] / totals["waited"]
    said = (
        f"From the backlog's acceptance to the primary's, {count_of(totals['waited'], 'message')} waited "
        f"{duration(average)} on average, and {duration(totals['longest_wait_seconds'])} at most."
    )
    return section("Waits", bars(waits), said=said)


def _entities(summary: Mapping[str, Any]) -> str:
    rows = {"all": summary["totals"], **summary["entities"]}
    body = ([name, *(values[column] for column in _COUNTS), *_wait_cells(values)] for name, values in rows.items())
    return table(["entity", *_COUNTS.values(), *_WAITS.values()], body) + _order(summary["totals"])


def _order(totals: Mapping[str, Any]) -> str:
    if not totals["sessions"]:
        return notes(["No message of a session is in these queues."])
    said = (
        f"{totals['session_messages']:,} messages of {totals['sessions']:,} sessions were followed; "
        f"a later one of its session has overtaken {totals['out_of_order']:,}, "
        f"in {count_of(totals['sessions_out_of_order'], 'session')}."
    )
    return notes([said])


def _wait_cells(values: Mapping[str, Any]) -> list[str]:
    # The sum over all entities has no percentiles, and what did not wait has no longest wait.
    return [duration(values.get(name)) if values["waited"] else "" for name in _WAITS]


def _cost(cost: Mapping[str, Any]) -> str:
    said = (
        f"{count_of(cost['total'], 'operation')} by the ledger, a lower bound: {cost['amount']} {cost['currency']} "
        f"by the list prices of {cost['prices_as_of']}, if nothing else is billed in a month. "
        "The job cost adds what meters know."
    )
    return section(
        "Cost", bars({name.replace("_", " "): count for name, count in cost["operations"].items()}), said=said
    )


def _examples(summary: Mapping[str, Any]) -> Iterator[str]:
    for kind, messages in summary["examples"].items():
        if messages:
            items = "".join(f"<li><code>{escape(message)}</code></li>" for message in messages)
            yield section(f"Some: {kind}", f"<ul>{items}</ul>")


def _said(summary: Mapping[str, Any]) -> Iterator[str]:
    ledger = summary["ledger"]
    yield f"The ledger holds {ledger['records']:,} records and {count_of(ledger['torn'], 'unfinished line')}."
    if summary["pings"]:
        yield f"The service keeps {count_of(summary['pings'], 'ping')}."
    for place, count in summary["unreadable"].items():
        yield f"{count_of(count, 'message')} in {place} cannot be decoded; nothing is said of it but that."
    if summary["unaddressed"]:
        yield f"{count_of(summary['unaddressed'], 'message')} in the backlog can be of no entity: none is named."
    if summary["absent_backlog_queues"]:
        yield f"Backlog queues that do not exist: {', '.join(summary['absent_backlog_queues'])}."
    if summary["unexamined"]:
        yield f"Nothing is said of entities that were not named: {', '.join(summary['unexamined'])}."
