r"""Compares the ledger with the queues, to prove that no message was lost.

::

    spark-submit reconcile.py --pair env:PAIR --ledger ledger --output proof \
        --entities flights,delays/Subscriptions/all [--run 2026-01-01 [--manifest publish.json]] \
        [--taps delays/Subscriptions/audit] [--receipts received.parquet]

Peeks only; nothing is received. Name every subscription that should hold a topic's messages. Exit status 1: a message
is lost, or its body changed; 2: nothing was classified, because an argument is invalid or a queue cannot be read;
3: not proven, for the reasons that are printed. Another run replaces the output folder.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.ledger import Judgement
from servicebus_pair.spark.analysis.evidence import read_manifests
from servicebus_pair.spark.analysis.receiving_entities import parse_receiving_entities
from servicebus_pair.spark.analysis.reconciling import reconcile
from servicebus_pair.spark.base.redaction import task_error_message
from servicebus_pair.spark.base.tables import read_table
from servicebus_pair.spark.jobs.command_line import SPARK_ERRORS, JobParser, add_arguments, create_session, fail
from servicebus_pair.spark.report.reconcile_result import Reconciliation

_STATUS: Final = {Judgement.PROVEN: 0, Judgement.LOST: 1, Judgement.NOT_PROVEN: 3}


def main(arguments: Sequence[str]) -> int:
    """Run the program and return its exit status."""
    parser = JobParser(
        prog="reconcile",
        description="prove that no message was lost",
        epilog="exit status: 0, proven; 1, a message is lost or altered; 2, nothing was classified: an argument is "
        "invalid or a queue cannot be read; 3, not proven: something that could hide a loss was not examined",
    )
    add_arguments(parser, "--pair", "--ledger", "--output")
    parser.add_argument(
        "--entities", required=True, help="comma-separated: queue, topic/Subscriptions/name or path=entity"
    )
    parser.add_argument("--run", help="classify only messages of this run")
    parser.add_argument("--manifest", help="manifest of the run's publish, with which the ledger must agree")
    parser.add_argument(
        "--taps", help="comma-separated: subscriptions that nothing receives from, whose copies prove an arrival"
    )
    parser.add_argument(
        "--receipts", help="table of what consumers received: a Parquet, ORC, CSV or JSON-lines path, with messageId"
    )
    parsed = parser.parse_args(arguments)
    try:
        manifest = None if parsed.manifest is None else read_manifests(parsed.manifest, run=parsed.run)
        spark = create_session("reconcile")
        result = reconcile(
            spark,
            pair_reference=parsed.pair,
            ledger=parsed.ledger,
            receiving_entities=parse_receiving_entities(parsed.entities, taps=parsed.taps),
            output=parsed.output,
            run=parsed.run,
            manifest=manifest,
            receipts=None
            if parsed.receipts is None
            else read_table(spark, parsed.receipts, columns=("messageId", "entity")),
        )
    except ConfigurationError as error:
        return fail("reconcile", error)
    except SPARK_ERRORS as error:
        return fail("reconcile", f"{task_error_message(error)}; nothing was classified")
    print(_summary(result))  # noqa: T201  command-line output
    if result.totals.lost or result.totals.altered:
        examples = ", ".join((*result.examples["lost"], *result.examples["altered"]))
        reasons = f"{'; '.join(result.reasons)}; such as: {examples}"
        return fail("reconcile", reasons, status=_STATUS[result.judgement])
    if result.judgement is Judgement.NOT_PROVEN:
        return fail("reconcile", f"not proven: {'; '.join(result.reasons)}", status=_STATUS[result.judgement])
    return _STATUS[result.judgement]


def _summary(result: Reconciliation) -> str:
    totals = result.totals
    return (
        f"{result.judgement}: reconciled {totals.messages} messages: {totals.delivered} delivered, "
        f"{totals.waiting} waiting in the backlog, "
        f"{totals.dead_lettered} dead-lettered, {totals.consumed} consumed or expired, {totals.lost} lost, "
        f"{totals.unrecorded} not in the ledger; "
        f"{totals.duplicates} duplicates, {totals.duplicates_predicted} of them predicted by the ledger; "
        f"{len(result.incidents)} incidents; "
        f"{sum(each.out_of_order for each in result.order.values())} messages of sessions out of order"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
