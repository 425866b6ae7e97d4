r"""Proves from the ledger and the queues that nothing was lost.

::

    spark-submit reconcile.py --pair env:PAIR --ledger ledger --output proof \
        --entities flights,delays/Subscriptions/all [--run 2026-01-01]

Reads the queues by peek; nothing is taken. Give every subscription that should hold a topic's
messages. Exit status 1 when a message is lost, 2 when nothing was judged, since an argument is wrong or
a queue cannot be read. The output folder is described in ``servicebus_pair.spark.reconciling``; run
again, the job writes it anew.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.errors import PySparkException

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.jobs.arguments import PLACES, session
from servicebus_pair.spark.places import parse_places
from servicebus_pair.spark.reconciliation import Reconciliation
from servicebus_pair.spark.reconciling import reconcile
from servicebus_pair.spark.redaction import task_error

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Run the program; answer its exit status."""
    parser = argparse.ArgumentParser(prog="reconcile", description="prove that nothing was lost")
    parser.add_argument("--pair", required=True, help=f"where the pair's settings are: {PLACES}")
    parser.add_argument("--ledger", required=True, help="folder of the ledger")
    parser.add_argument("--entities", required=True, help="places: queue, topic/Subscriptions/name or path=entity, ...")
    parser.add_argument("--output", required=True, help="folder of the result")
    parser.add_argument("--run", help="judge only what this run sent")
    given = parser.parse_args(arguments)
    try:
        found = reconcile(
            session("reconcile"),
            pair_reference=given.pair,
            ledger=given.ledger,
            places=parse_places(given.entities),
            output=given.output,
            run=given.run,
        )
    except ConfigurationError as error:
        print(f"reconcile: {error}", file=sys.stderr)  # noqa: T201  a program speaks to its terminal
        return 2
    except PySparkException as error:
        print(f"reconcile: {task_error(error)}; nothing was judged", file=sys.stderr)  # noqa: T201  the same
        return 2
    print(_sentence(found))  # noqa: T201  the same
    if found.totals.lost:
        examples = ", ".join(found.examples["lost"])
        print(f"reconcile: {found.totals.lost} messages are lost, such as: {examples}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def _sentence(found: Reconciliation) -> str:
    whole = found.totals
    return (
        f"reconciled {whole.messages} messages: {whole.delivered} delivered, {whole.waiting} waiting in the backlog, "
        f"{whole.dead_lettered} dead-lettered, {whole.lost} lost, {whole.unrecorded} not in the ledger; "
        f"{whole.duplicates} duplicates, {whole.duplicates_predicted} of them predicted by the ledger; "
        f"{len(found.incidents)} incidents; "
        f"{sum(each.out_of_order for each in found.order.values())} messages of sessions out of order"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
