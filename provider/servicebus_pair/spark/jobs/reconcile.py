r"""Compares the ledger with the queues, to prove that no message was lost.

::

    spark-submit reconcile.py --pair env:PAIR --ledger ledger --output proof \
        --entities flights,delays/Subscriptions/all [--run 2026-01-01]

Peeks only; nothing is received. Name every subscription that should hold a topic's messages. Exit status 1: a
message is lost; 2: nothing was classified, because an argument is invalid or a queue cannot be read. Another run
replaces the output folder.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from pyspark.errors import PySparkException

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.analysis.receiving_entities import parse_receiving_entities
from servicebus_pair.spark.analysis.reconciling import reconcile
from servicebus_pair.spark.base.redaction import task_error_message
from servicebus_pair.spark.jobs.command_line import add_arguments, create_session, fail
from servicebus_pair.spark.report.reconcile_result import Reconciliation

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Run the program and return its exit status."""
    parser = argparse.ArgumentParser(prog="reconcile", description="prove that no message was lost")
    add_arguments(parser, "--pair", "--ledger", "--output")
    parser.add_argument(
        "--entities", required=True, help="comma-separated: queue, topic/Subscriptions/name or path=entity"
    )
    parser.add_argument("--run", help="classify only messages of this run")
    parsed = parser.parse_args(arguments)
    try:
        result = reconcile(
            create_session("reconcile"),
            pair_reference=parsed.pair,
            ledger=parsed.ledger,
            receiving_entities=parse_receiving_entities(parsed.entities),
            output=parsed.output,
            run=parsed.run,
        )
    except ConfigurationError as error:
        return fail("reconcile", error)
    except PySparkException as error:
        return fail("reconcile", f"{task_error_message(error)}; nothing was classified")
    print(_summary(result))  # noqa: T201  command-line output
    if result.totals.lost:
        examples = ", ".join(result.examples["lost"])
        return fail("reconcile", f"{result.totals.lost} messages are lost, such as: {examples}", status=1)
    return 0


def _summary(result: Reconciliation) -> str:
    totals = result.totals
    return (
        f"reconciled {totals.messages} messages: {totals.delivered} delivered, "
        f"{totals.waiting} waiting in the backlog, "
        f"{totals.dead_lettered} dead-lettered, {totals.lost} lost, {totals.unrecorded} not in the ledger; "
        f"{totals.duplicates} duplicates, {totals.duplicates_predicted} of them predicted by the ledger; "
        f"{len(result.incidents)} incidents; "
        f"{sum(each.out_of_order for each in result.order.values())} messages of sessions out of order"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
