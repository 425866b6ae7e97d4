"""``python -m tests.system.fifty_runs``: recoveries in a row under a real Airflow; no task may fail spuriously.

Exit status: 0 when every task of every run succeeded at its first try and every message is on the primary once.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.system.whole.platform import platform
from tests.system.whole.repeating import AT_ONCE, rounds


def main() -> int:
    """Run, tell each round, and sum up."""
    parser = argparse.ArgumentParser(prog="python -m tests.system.fifty_runs", description=__doc__)
    parser.add_argument("--runs", type=int, default=50, help="how many, one after the other")
    wanted = parser.parse_args().runs
    good = tasks = 0
    with tempfile.TemporaryDirectory() as folder, platform(Path(folder) / "home", wanted=[AT_ONCE]) as whole:
        for each in rounds(whole, count=wanted):
            good += each.good
            tasks += each.tasks
            print(each, flush=True)  # noqa: T201  it reports on the terminal
        left = whole.wait_until_clean()
    print(f"{good} of {wanted} runs without a failed or repeated task, of {tasks} tasks; left behind: {left}")  # noqa: T201
    return 0 if good == wanted and not left else 1


if __name__ == "__main__":
    sys.exit(main())
