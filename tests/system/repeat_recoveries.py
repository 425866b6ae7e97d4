"""``python -m tests.system.repeat_recoveries``: repeat a recovery with a complete Airflow; no task may fail spuriously.

Exit status: 0 if every task of every run succeeded at its first try and every message arrived once.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.system.platform.platform import platform
from tests.system.platform.repeated_recoveries import SIMULTANEOUS_DAG, repeat_recovery


def main() -> int:
    """Run, print each result, and summarize."""
    parser = argparse.ArgumentParser(prog="python -m tests.system.repeat_recoveries", description=__doc__)
    parser.add_argument("--runs", type=int, default=50, help="number of runs")
    count = parser.parse_args().runs
    succeeded = tasks = 0
    with tempfile.TemporaryDirectory() as folder, platform(Path(folder) / "home", dag_ids=[SIMULTANEOUS_DAG]) as system:
        for each in repeat_recovery(system, count=count):
            succeeded += each.succeeded
            tasks += each.tasks
            print(each, flush=True)  # noqa: T201  command-line output
        leftovers = system.wait_for_no_leftovers()
    print(f"{succeeded} of {count} runs without a failed or retried task, {tasks} tasks; left behind: {leftovers}")  # noqa: T201
    return 0 if succeeded == count and not leftovers else 1


if __name__ == "__main__":
    sys.exit(main())
