"""What a run came to: reads the queues, compares, draws, and says it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.system.demo.compare import compare
from tests.system.demo.peek import peek_backlog_queues, peek_everything, queue_names
from tests.system.demo.picture import draw
from tests.system.demo.proof import last_proof
from tests.system.demo.summary import findings, summarize, table, write

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tests.system.demo.compare import Comparison, Content, Found, Key
    from tests.system.demo.ledger import LedgerReader, Tally
    from tests.system.demo.picture import Outage
    from tests.system.demo.stack import Stack
    from tests.system.demo.story import Played
    from tests.system.demo.terminal import Terminal

__all__ = ["DESTINATIONS", "report"]

DESTINATIONS = {
    "flights": "flights",
    "briefings": "briefings",
    "statistics": "statistics",
    "delays": "delays/Subscriptions/all",
}
"""Where each entity's messages are found."""


def report(
    stack: Stack,
    expected: Mapping[Key, Content],
    ledger: LedgerReader,
    played: Played,
    terminal: Terminal,
    *,
    at_the_end: bool,
) -> int:
    """Compare what the queues hold with what was to be sent; write picture and summary; return the exit status.

    :param at_the_end: whether Spark reconciled when everything else had ended.
    """
    terminal.say("reading every message that the queues hold (peek), dead letters and backlog included ...")
    found = read(stack)
    terminal.say(f"found {len(found):,} messages; comparing them, field by field, with {len(expected):,} made anew")
    comparison = compare(expected, found, destinations=DESTINATIONS)
    summary = summarize(
        ledger.tally.figures,
        comparison,
        seconds=terminal.seconds,
        outage_seconds=played.outage.ended - played.outage.began,
        published_at_restart=played.published_at_restart,
        delivered_by_entity=dict(Counter(item.place for item in found)),
        duplicates_in_doubt=in_doubt(found, comparison, ledger.tally, played.outage),
        reconciled=last_proof(stack.home.output),
        reconciled_at_the_end=at_the_end,
    )
    draw(
        ledger.records,
        played.outage,
        title=f"An outage survived: {summary.sent:,} messages, {summary.lost or 'none'} lost",
        subtitle="The primary's process was killed in the middle of publishing. "
        f"{summary.diverted:,} messages took the way round.",
        path=stack.home.picture,
    )
    write(summary, stack.home.summary)
    print("\n" + table(summary))
    for line in [*findings(comparison), *(f"NOT PROVEN: {reason}" for reason in summary.failures)]:
        print(line)
    print(f"picture: {stack.home.picture}\nfigures: {stack.home.summary}\nproof:   {summary.reconciled.report}\n")
    return 1 if summary.failures else 0


def in_doubt(found: Iterable[Found], comparison: Comparison, tally: Tally, outage: Outage) -> int:
    """Return how many duplicates were stored before the primary died, and diverted as nobody had heard of that."""
    return sum(
        item.key in comparison.duplicates
        and item.place == DESTINATIONS[item.key[0]]
        and tally.was_diverted(item.key)
        and item.stored < outage.began
        for item in found
    )


def read(stack: Stack) -> list[Found]:
    """Return all messages of the primary's entities and of the secondary's backlog queues."""
    found = peek_everything(stack.primary.connection_string, list(DESTINATIONS.values()))
    queues = queue_names(stack.secondary.administration)
    return found + peek_backlog_queues(stack.secondary.connection_string, queues)
