r"""Profiles the backlog: destinations, ages, sizes and dead-letter reasons.

::

    spark-submit profile_backlog.py --pair env:PAIR --output profile [--queues contoso/x-servicebus-transfer/0,...]

Peeks only; nothing is received. Exit status 2: an argument is invalid or the backlog cannot be read. Another run
replaces the output folder. The program is not called ``profile.py``, because its folder is on ``sys.path`` and would
hide the standard library's module.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.analysis.profiling import profile
from servicebus_pair.spark.base.offsets import DEAD_LETTER, MAIN
from servicebus_pair.spark.base.redaction import task_error_message
from servicebus_pair.spark.jobs.command_line import SPARK_ERRORS, JobParser, add_arguments, create_session, fail


def main(arguments: Sequence[str]) -> int:
    """Run the program and return its exit status."""
    parser = JobParser(prog="profile_backlog", description="profile the backlog")
    add_arguments(parser, "--pair", "--output", "--queues")
    parsed = parser.parse_args(arguments)
    try:
        result = profile(
            create_session("profile"), pair_reference=parsed.pair, output=parsed.output, queues=parsed.queues
        )
    except ConfigurationError as error:
        return fail("profile_backlog", error)
    except SPARK_ERRORS as error:
        return fail("profile_backlog", task_error_message(error))
    waiting, dead = result.messages(MAIN), result.messages(DEAD_LETTER)
    print(f"{waiting} messages wait in {len(result.queues)} backlog queues, {dead} are dead letters")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
