r"""Tells what sits in the backlog: destinations, ages, sizes, dead-letter reasons.

::

    spark-submit profile_backlog.py --pair env:PAIR --output profile [--queues contoso/x-servicebus-transfer/0,...]

Looks by peek; nothing is taken. Exit status 2 when an argument is wrong or the backlog cannot be read. The output
folder is described in ``servicebus_pair.spark.profiling``; run again, the job writes it anew. The program is not called
``profile.py``, since Python has a module of that name, which a program's own folder would hide.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.cursors import DEAD_LETTER, MAIN
from servicebus_pair.spark.jobs.arguments import PLACES, names, session
from servicebus_pair.spark.profiling import profile

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Run the program; answer its exit status."""
    parser = argparse.ArgumentParser(prog="profile_backlog", description="tell what sits in the backlog")
    parser.add_argument("--pair", required=True, help=f"where the pair's settings are: {PLACES}")
    parser.add_argument("--output", required=True, help="folder of the result")
    parser.add_argument("--queues", type=names, help="paths of backlog queues, with commas; default: all")
    given = parser.parse_args(arguments)
    try:
        found = profile(session("profile"), pair_reference=given.pair, output=given.output, queues=given.queues)
    except ConfigurationError as error:
        print(f"profile_backlog: {error}", file=sys.stderr)  # noqa: T201  a program speaks to its terminal
        return 2
    waiting, dead = found.messages(MAIN), found.messages(DEAD_LETTER)
    print(f"{waiting} messages wait in {len(found.queues)} backlog queues, {dead} are dead letters")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
