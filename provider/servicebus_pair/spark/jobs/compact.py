r"""Folds the many files of a ledger into a Parquet file for each day and run.

::

    spark-submit compact.py --ledger ledger [--keep-days 1]

Connects to no namespace. Exit status 2: an argument is invalid, or another compaction runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.analysis.compacting import compact
from servicebus_pair.spark.base.redaction import task_error_message
from servicebus_pair.spark.jobs.command_line import SPARK_ERRORS, JobParser, add_arguments, create_session, fail


def main(arguments: Sequence[str]) -> int:
    """Run the program and return its exit status."""
    parser = JobParser(prog="compact", description="fold the files of a ledger into Parquet")
    add_arguments(parser, "--ledger")
    parser.add_argument("--keep-days", type=int, default=1, help="days, today included, that are left as they are")
    parsed = parser.parse_args(arguments)
    try:
        done = compact(create_session("compact"), ledger=parsed.ledger, keep_days=parsed.keep_days)
    except ConfigurationError as error:
        return fail("compact", error)
    except SPARK_ERRORS as error:
        return fail("compact", task_error_message(error))
    print(f"{done.files} files with {done.records} records were folded in {done.folders} folders; {done.left} are left")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
