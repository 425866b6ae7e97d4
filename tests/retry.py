"""Runs pytest in parallel, then runs what failed once more, one at a time, and reports flaky tests by name.

``python -m tests.retry PARALLEL -- ARGUMENTS``: PARALLEL are the options of the parallel run only. Tests with time
limits may miss them on a busy machine; an error in the code fails both times. A test that passes the second time is
flaky: it is listed, and more than three of them fail the run.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

FLAKY_LIMIT: Final = 3
_LAST_FAILED: Final = Path(".pytest_cache/v/cache/lastfailed")
_TESTS_FAILED: Final = 1  # pytest's exit status; every higher one is not about single tests


def verdict(failed: set[str], failed_again: set[str]) -> tuple[list[str], int]:
    """Return the lines to print and the exit status."""
    flaky = sorted(failed - failed_again)
    lines = [f"FLAKY {test} (failed in parallel, passed alone)" for test in flaky]
    if len(flaky) > FLAKY_LIMIT:
        lines.append(f"{len(flaky)} flaky tests, at most {FLAKY_LIMIT} are accepted")
    return lines, int(bool(failed_again) or len(flaky) > FLAKY_LIMIT)


def run(parallel: Sequence[str], arguments: Sequence[str]) -> int:
    # The cache may name failures of an earlier run with other arguments.
    status = _pytest([*parallel, "--cache-clear", *arguments])
    if status != _TESTS_FAILED:
        return status
    failed = _last_failed()
    if not all(".py" in each for each in failed):
        # Workers that disagree about the tests, or crash, are listed themselves: nothing of theirs can be run alone.
        return status
    print(f"{len(failed)} failed in parallel; running them once more, one at a time.", flush=True)
    status = _pytest(["--last-failed", "--last-failed-no-failures", "none", *arguments])
    if status > _TESTS_FAILED:
        return status
    lines, status = verdict(failed, _last_failed() if status else set())
    print("\n".join(lines), flush=True)
    return status


def _pytest(arguments: Sequence[str]) -> int:
    return subprocess.run([sys.executable, "-m", "pytest", *arguments], check=False).returncode


def _last_failed() -> set[str]:
    return set(json.loads(_LAST_FAILED.read_text("utf-8"))) if _LAST_FAILED.is_file() else set()


if __name__ == "__main__":
    separator = sys.argv.index("--")
    sys.exit(run(sys.argv[1:separator], sys.argv[separator + 1 :]))
