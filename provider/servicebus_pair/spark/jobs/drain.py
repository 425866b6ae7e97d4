r"""Moves what the backlog queues hold to their entities on the primary: the syphon at scale.

::

    spark-submit drain.py --pair env:PAIR --ledger ledger --run 2026-01-01 --report drain.json \
        [--entities flights,delays] [--queues contoso/x-servicebus-transfer/0,...] [--rate 2000] \
        [--time-to-live restart|elapse] [--redrive] [--tasks 8]

At least once: a message leaves the backlog after the primary has confirmed it. Run again, it goes on where it was.
Exit status 1 when something is left that was asked for, 2 when nothing was begun: an argument is wrong, a right is
missing, or a namespace does not answer. The report is removed first and written last.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pyspark.errors import PySparkException

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.parcels import TimeToLive
from servicebus_pair.spark.draining import Drained, drain
from servicebus_pair.spark.files import write_json
from servicebus_pair.spark.jobs.arguments import PLACES, names, session
from servicebus_pair.spark.redaction import task_error

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Run the program; answer its exit status."""
    parser = argparse.ArgumentParser(
        prog="drain",
        description="move what the backlog holds to the primary; what it has confirmed leaves the backlog",
        epilog="exit status: 0, nothing of what was asked for is left; 1, something is, or a task failed, and what was "
        "moved stays moved; 2, nothing was begun: an argument is wrong, a right is missing, no namespace answers",
    )
    parser.add_argument("--pair", required=True, help=f"where the pair's settings are: {PLACES}")
    parser.add_argument("--ledger", required=True, help="folder of the ledger")
    parser.add_argument("--run", required=True, help="what this run is called in the ledger")
    parser.add_argument("--report", required=True, help="file that the report is written to, as JSON")
    parser.add_argument("--entities", type=names, help="move only what is meant for these, with commas; default: all")
    parser.add_argument("--queues", type=names, help="paths of backlog queues, with commas; default: all")
    parser.add_argument("--rate", type=float, help="messages per second over all tasks; default: no limit")
    parser.add_argument(
        "--time-to-live",
        choices=[each.value for each in TimeToLive],
        default=TimeToLive.RESTART.value,
        help="elapse counts the time in the backlog, and dead-letters what has expired; default: restart",
    )
    parser.add_argument("--redrive", action="store_true", help="move the dead letters of the backlog queues instead")
    parser.add_argument("--tasks", type=int, help="tasks that share the queues; default: one for each queue")
    given = parser.parse_args(arguments)
    Path(given.report).unlink(missing_ok=True)
    try:
        done = drain(
            session("drain"),
            pair_reference=given.pair,
            ledger=given.ledger,
            run=given.run,
            queues=given.queues,
            entities=given.entities,
            rate=given.rate,
            time_to_live=TimeToLive(given.time_to_live),
            redrive=given.redrive,
            tasks=given.tasks,
        )
    except ConfigurationError as error:
        print(f"drain: {error}", file=sys.stderr)  # noqa: T201  a program speaks to its terminal
        return 2
    except PySparkException as error:
        print(f"drain: {task_error(error)}; what was moved stays moved", file=sys.stderr)  # noqa: T201  the same
        return 1
    write_json(given.report, done.to_json())
    print(_sentence(done))  # noqa: T201  the same
    if not done.empty:
        print(f"drain: {done.left} messages are left: {dict(done.failures)}", file=sys.stderr)  # noqa: T201  the same
        return 1
    return 0


def _sentence(done: Drained) -> str:
    return (
        f"drained {sum(done.moved.values())} messages, {sum(done.dead_lettered.values())} dead-lettered, "
        f"{done.left} left, at most {done.duplicates_possible} duplicates, in {done.seconds:.1f} s"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
