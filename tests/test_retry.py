"""``make test`` must not hide flaky tests: it names them, and fails when there are many."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.retry import FLAKY_LIMIT, verdict

FLAKY = """
from pathlib import Path

import pytest

@pytest.mark.parametrize("number", range({count}))
def test_passes_the_second_time(number):
    seen = Path(f"seen-{{number}}")
    before = seen.exists()
    seen.touch()
    assert before or number >= {flaky}
"""


BROKEN = """
def test_is_broken():
    assert False
"""
DIFFERENT_IN_EACH_WORKER = """
import os

@pytest.mark.parametrize("pid", [os.getpid()])
def test_has_a_name_in_each_worker(pid):
    pass
"""


def retry(
    folder: Path, *, count: int, flaky: int, more: str = "", parallel: Sequence[str] = ("-p", "no:xdist")
) -> subprocess.CompletedProcess[str]:
    text = FLAKY.format(count=count, flaky=flaky) + more
    (folder / "test_sample.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\n")
    return subprocess.run(
        [sys.executable, "-m", "tests.retry", *parallel, "--", "test_sample.py"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(("flaky", "status"), [(0, 0), (1, 0), (FLAKY_LIMIT, 0), (FLAKY_LIMIT + 1, 1)])
def test_flaky_tests_are_named_and_too_many_fail_the_run(tmp_path: Path, flaky: int, status: int) -> None:
    done = retry(tmp_path, count=FLAKY_LIMIT + 2, flaky=flaky)

    assert done.returncode == status, done.stdout
    named = [line for line in done.stdout.splitlines() if line.startswith("FLAKY ")]
    assert [line.split()[1] for line in named] == [
        f"test_sample.py::test_passes_the_second_time[{number}]" for number in range(flaky)
    ]


def test_a_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    done = retry(tmp_path, count=2, flaky=1, more=BROKEN)

    assert done.returncode == 1
    assert "FLAKY test_sample.py::test_passes_the_second_time[0]" in done.stdout
    assert "FLAKY test_sample.py::test_is_broken" not in done.stdout


def test_the_verdict_counts_flaky_and_broken_tests() -> None:
    assert verdict({"a"}, set()) == (["FLAKY a (failed in parallel, passed alone)"], 0)
    assert verdict({"a"}, {"a"}) == ([], 1)


def test_workers_that_collect_different_tests_fail_the_run_at_once(tmp_path: Path) -> None:
    done = retry(tmp_path, count=1, flaky=0, more=DIFFERENT_IN_EACH_WORKER, parallel=("--numprocesses", "2"))

    assert done.returncode == 1
    assert "Different tests were collected" in done.stdout
    assert "running them once more" not in done.stdout
