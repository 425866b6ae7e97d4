r"""Moves the messages of the backlog queues to their entities on the primary.

::

    spark-submit drain.py --pair env:PAIR --ledger ledger --run 2026-01-01 --report drain.json \
        [--entities flights,delays] [--queues contoso/x-servicebus-transfer/0,...] [--rate 2000] \
        [--time-to-live restart|elapse] [--redrive] [--tasks 8]

At least once: a message leaves the backlog after the primary has confirmed it. Another run continues where this one
stopped. Exit status 1: selected messages remain, or a task failed; 2: nothing was started, because an argument is
invalid, a permission is missing, or a namespace does not respond. The report is deleted first and written last.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from servicebus_pair.core import TimeToLive
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.base.redaction import task_error_message
from servicebus_pair.spark.base.report_files import write_json
from servicebus_pair.spark.jobs.command_line import (
    SPARK_ERRORS,
    JobParser,
    add_arguments,
    comma_separated,
    create_session,
    fail,
)
from servicebus_pair.spark.transfer.draining import DrainResult, drain


def main(arguments: Sequence[str]) -> int:
    """Run the program and return its exit status."""
    parser = JobParser(
        prog="drain",
        description="move backlog messages to the primary; a message leaves the backlog once the primary confirmed it",
        epilog="exit status: 0, no selected message remains; 1, some remain, or a task failed, and moved messages stay "
        "moved; 2, nothing was started: an argument is invalid, a permission is missing, or a namespace is unavailable",
    )
    add_arguments(parser, "--pair", "--ledger", "--run", "--rate", "--queues")
    parser.add_argument("--report", required=True, help="file to which the report is written, as JSON")
    parser.add_argument(
        "--entities", type=comma_separated, help="move only messages for these entities, comma-separated; default: all"
    )
    parser.add_argument(
        "--time-to-live",
        choices=[each.value for each in TimeToLive],
        default=TimeToLive.RESTART.value,
        help="elapse includes the time in the backlog, and dead-letters expired messages; default: restart",
    )
    parser.add_argument("--redrive", action="store_true", help="move the dead letters of the backlog queues instead")
    parser.add_argument(
        "--tasks", type=int, help="number of tasks; default: one for each queue, and at least one per core"
    )
    parsed = parser.parse_args(arguments)
    Path(parsed.report).unlink(missing_ok=True)
    try:
        result = drain(
            create_session("drain"),
            pair_reference=parsed.pair,
            ledger=parsed.ledger,
            run=parsed.run,
            queues=parsed.queues,
            entities=parsed.entities,
            rate=parsed.rate,
            time_to_live=TimeToLive(parsed.time_to_live),
            redrive=parsed.redrive,
            tasks=parsed.tasks,
        )
    except ConfigurationError as error:
        return fail("drain", error)
    except SPARK_ERRORS as error:
        return fail("drain", f"{task_error_message(error)}; moved messages stay moved", status=1)
    write_json(parsed.report, result.to_json())
    print(_summary(result))  # noqa: T201  command-line output
    if not result.empty:
        return fail("drain", f"{result.left} messages remain: {dict(result.failures)}", status=1)
    return 0


def _summary(result: DrainResult) -> str:
    return (
        f"drained {sum(result.moved.values())} messages, {sum(result.dead_lettered.values())} dead-lettered, "
        f"{result.left} remaining, at most {result.duplicates_possible} duplicates, in {result.seconds:.1f} s"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
