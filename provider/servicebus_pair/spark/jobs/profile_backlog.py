r"""Profiles the backlog: destinations, ages, sizes and dead-letter reasons.

::

    spark-submit profile_backlog.py --pair env:PAIR --output profile [--queues contoso/x-servicebus-transfer/0,...]

Peeks only; nothing is received. Exit status 2: an argument is invalid or the backlog cannot be read. The output
folder is described in ``servicebus_pair.spark.analysis.profiling``; another run replaces it. The program is not called
``profile.py``, because its folder is on ``sys.path`` and would hide the standard library's module.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.analysis.profiling import profile
from servicebus_pair.spark.base.offsets import DEAD_LETTER, MAIN
from servicebus_pair.spark.jobs.command_line import REFERENCE_FORMS, comma_separated, create_session

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Run the program and return its exit status."""
    parser = argparse.ArgumentParser(prog="profile_backlog", description="profile the backlog")
    parser.add_argument("--pair", required=True, help=f"where the pair's settings are: {REFERENCE_FORMS}")
    parser.add_argument("--output", required=True, help="folder of the result")
    parser.add_argument("--queues", type=comma_separated, help="paths of backlog queues, comma-separated; default: all")
    parsed = parser.parse_args(arguments)
    try:
        result = profile(
            create_session("profile"), pair_reference=parsed.pair, output=parsed.output, queues=parsed.queues
        )
    except ConfigurationError as error:
        print(f"profile_backlog: {error}", file=sys.stderr)  # noqa: T201  command-line output
        return 2
    waiting, dead = result.messages(MAIN), result.messages(DEAD_LETTER)
    print(f"{waiting} messages wait in {len(result.queues)} backlog queues, {dead} are dead letters")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
