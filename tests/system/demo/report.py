"""Reads the queues, compares them with the expected messages, and writes plot and summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from tests.system.demo.comparison import Comparison, Content, Found, Key, compare
from tests.system.demo.flow_plot import Outage, plot_flow
from tests.system.demo.ledger import LedgerReader, Tally
from tests.system.demo.peek import peek_backlog_queues, peek_everything, queue_names
from tests.system.demo.reconcile_result import read_latest_result
from tests.system.demo.scenario import ScenarioResult
from tests.system.demo.stack import Stack
from tests.system.demo.summary import Summary, findings, table, write
from tests.system.demo.terminal import Terminal

DESTINATIONS = {
    "flights": "flights",
    "briefings": "briefings",
    "statistics": "statistics",
    "delays": "delays/Subscriptions/all",
}
"""For each entity, the queue or subscription where its messages arrive."""


def report(
    stack: Stack,
    expected: Mapping[Key, Content],
    ledger: LedgerReader,
    result: ScenarioResult,
    terminal: Terminal,
    *,
    after_recovery: bool,
) -> int:
    """Compare the queues with the expected messages, write plot and summary, and return the exit status.

    :param after_recovery: whether Spark reconciled after everything else had finished.
    """
    terminal.say("peeking all messages, including dead letters and backlog ...")
    found = read(stack)
    terminal.say(f"found {len(found):,} messages; comparing each field with the {len(expected):,} expected messages")
    comparison = compare(expected, found, destinations=DESTINATIONS)
    counts = ledger.tally.counts
    summary = Summary(
        sent=counts.sent,
        primary=counts.primary,
        diverted=counts.diverted,
        spooled=counts.spooled,
        spool_expected=result.secondary_outage is not None,
        syphoned=counts.syphoned,
        delivered=comparison.delivered,
        duplicates=sum(comparison.duplicates.values()),
        duplicates_predicted=counts.repeated,
        duplicates_in_doubt=count_duplicates_in_doubt(found, comparison, ledger.tally, result.outage),
        lost=len(comparison.lost),
        seconds=round(terminal.seconds, 1),
        expected=comparison.expected,
        differing_fields=len(comparison.differences),
        stranded=len(comparison.stranded),
        unexpected=len(comparison.unexpected),
        longest_wait=round(counts.longest_wait, 1),
        outage_seconds=round(result.outage.ended_at - result.outage.started_at, 1),
        published_at_restart=round(result.published_at_restart, 2),
        delivered_by_entity=dict(Counter(item.place for item in found)),
        reconciled=read_latest_result(stack.home.output),
        reconciled_after_recovery=after_recovery,
    )
    plot_flow(
        ledger.records,
        result.outage,
        secondary_outage=result.secondary_outage,
        title=f"Outage of the primary: {summary.sent:,} messages sent, {summary.lost or 'none'} lost",
        subtitle=f"The primary was killed: {summary.diverted:,} messages went to the backlog"
        + (f", {summary.spooled:,} to the spool while both were down." if summary.spooled else "."),
        path=stack.home.plot,
    )
    write(summary, stack.home.summary)
    print("\n" + table(summary))
    for line in [*findings(comparison), *(f"FAILED: {reason}" for reason in summary.failures)]:
        print(line)
    print(
        f"plot:             {stack.home.plot}\nsummary:          {stack.home.summary}\n"
        f"reconcile report: {summary.reconciled.report}\n"
    )
    return 1 if summary.failures else 0


def count_duplicates_in_doubt(found: Iterable[Found], comparison: Comparison, tally: Tally, outage: Outage) -> int:
    """Return the number of duplicates that the primary stored without confirming them before it was killed."""
    return sum(
        item.key in comparison.duplicates
        and item.place == DESTINATIONS[item.key[0]]
        and tally.was_diverted(item.key)
        and item.stored < outage.started_at
        for item in found
    )


def read(stack: Stack) -> list[Found]:
    found = peek_everything(stack.primary.connection_string, list(DESTINATIONS.values()))
    queues = queue_names(stack.secondary.administration)
    return found + peek_backlog_queues(stack.secondary.connection_string, queues)
