"""``python -m tests.compatibility``: each supported minor version of Airflow on each supported Python, and of Spark.

In each environment (:mod:`tests.compatibility.environments`) every module is imported, every DAG parsed and an outage
survived under ``airflow dags test`` (:mod:`tests.compatibility.walk`). The quick tests for Airflow run once for each
minor version of Airflow and once on each Python, those of the data source on each version of Spark.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.compatibility.environments import (
    PROJECT,
    Environment,
    SparkEnvironment,
    UnavailableError,
    known_environments,
)
from tests.retry import FLAKY_LIMIT

_WALK_SECONDS: Final = 1800
_SUITE_SECONDS: Final = 3600
# Airflow 3.1 has a plugin of pytest that warns with a newer one, and the starlette of 3.3 warns of its anyio.
_OF_OTHERS: Final = "ignore:The anyio.abc.BlockingPortal alias:DeprecationWarning"
_PYTEST: Final = ("-q", "--no-header", "--assert=plain", "-p", "no:anyio", "-W", _OF_OTHERS)
_QUICK: Final = "not slow and not exploring and not spark"
_QUICK_SPARK: Final = "not slow and not exploring"
_AIRFLOW_TESTS: Final = ["tests/airflow"]
_SPARK_TESTS: Final = ["tests/spark/base", "tests/spark/datasource"]


@dataclass(slots=True)
class Outcome:
    """What became of one environment."""

    environment: Environment | SparkEnvironment
    passed: int = 0
    failures: list[str] = field(default_factory=list)
    flaky: list[str] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0

    @property
    def line(self) -> str:
        total = sum(self.skipped.values())
        row = f"{self.environment.name:12} {self.environment.release:14} {self.environment.source:18}"
        return f"{row} {self.passed:6} {len(self.failures):6} {len(self.flaky):5} {total:7} {self.seconds:7.0f}"

    @property
    def details(self) -> list[str]:
        name = self.environment.name
        return [
            *(f"  {name} FLAKY {test}" for test in self.flaky),
            *(f"  {name} skipped {count}: {reason}" for reason, count in self.skipped.items()),
            *(f"  {name} FAILED {reason}" for reason in self.failures),
        ]


def main() -> int:
    """Run, print the table and return how many environments failed."""
    parser = argparse.ArgumentParser(description="Airflow's minor versions on each Python, and Spark's.")
    parser.add_argument("--only", default="", help="parts of the environments' names, such as 3.1-py3.12,spark-4.0")
    parser.add_argument("--walk", action="store_true", help="without the quick tests")
    parser.add_argument("--all", action="store_true", help="with the quick tests in every environment")
    parser.add_argument("--here", action="store_true", help="only Airflow, and only on the Python that runs this")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("tests", nargs="*", default=None)
    options = parser.parse_args()
    outcomes = []
    for environment in known_environments(options.only, here=options.here):
        outcome, started = Outcome(environment), time.monotonic()
        outcomes.append(outcome)
        print(f"{environment.name}: {environment.release} ...", flush=True)
        try:
            environment.make()
        except UnavailableError as error:
            outcome.failures.append(f"not made: {error}")
            continue
        with tempfile.TemporaryDirectory(prefix="servicebus-compatibility-") as home:
            if isinstance(environment, SparkEnvironment):
                # Each worker would start a Spark of its own.
                _suite(outcome, Path(home), options.tests or _SPARK_TESTS, marked=_QUICK_SPARK)
            else:
                _walk(outcome, Path(home))
                if options.all or (environment.runs_all_tests and not options.walk):
                    tests = options.tests or _AIRFLOW_TESTS
                    _suite(outcome, Path(home), tests, marked=_QUICK, workers=options.workers)
        outcome.seconds = time.monotonic() - started
        print("\n".join([outcome.line, *outcome.details]), flush=True)
    print(_table(outcomes))
    return sum(bool(each.failures) for each in outcomes) if outcomes else 1


def _walk(outcome: Outcome, home: Path) -> None:
    steps = _run(outcome, home, ["-m", "tests.compatibility.walk"], seconds=_WALK_SECONDS)
    for line in steps.splitlines():
        with suppress(ValueError):
            step = json.loads(line)
            if isinstance(step, dict) and "step" in step:
                outcome.passed += step["passed"]
                outcome.failures += [] if step["passed"] else [f"{step['step']}: {step['reason']}"]
    if not steps:
        outcome.failures.append("the walk printed nothing")


def _suite(outcome: Outcome, home: Path, tests: list[str], *, marked: str, workers: int = 0) -> None:
    """Run tests in parallel, and those that failed once more, one at a time: who passes then is flaky."""
    arguments = ["-m", "pytest", *_PYTEST, "-o", f"cache_dir={home / 'cache'}", "-m", marked, *tests]
    parallel = ["--numprocesses", str(workers), "--dist", "loadfile", "--no-loadscope-reorder"] if workers else []
    failed = _failed_tests(outcome, home, [*arguments, *parallel], count=True)
    if failed:
        again = _failed_tests(outcome, home, [*arguments, "--last-failed", "--last-failed-no-failures", "none"])
        outcome.failures += [f"{test}: {message}" for test, message in failed.items() if test in again]
        outcome.flaky += sorted(failed.keys() - again.keys())
        if len(outcome.flaky) > FLAKY_LIMIT:
            outcome.failures.append(f"{len(outcome.flaky)} flaky tests, at most {FLAKY_LIMIT} are accepted")


def _failed_tests(outcome: Outcome, home: Path, arguments: list[str], *, count: bool = False) -> dict[str, str]:
    report, failed = home / "report.xml", dict[str, str]()
    report.unlink(missing_ok=True)
    _run(outcome, home, [*arguments, f"--junitxml={report}"], seconds=_SUITE_SECONDS)
    if not report.exists():
        outcome.failures.append("the quick tests left no report")
        return failed
    for case in ET.parse(report).iter("testcase"):  # noqa: S314  pytest wrote it
        ended = next((each for each in case if each.tag in ("failure", "error", "skipped")), None)
        if ended is None:
            outcome.passed += count
        elif ended.tag == "skipped":
            outcome.skipped[ended.get("message", "")] += count
        else:
            message = " ".join(ended.get("message", "").split())[:200]
            failed[f"{case.get('classname')}::{case.get('name')}"] = message
    return failed


def _run(outcome: Outcome, home: Path, arguments: list[str], *, seconds: int) -> str:
    command = [str(outcome.environment.executable), *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=PROJECT,
            env=outcome.environment.variables(home),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        outcome.failures.append(f"{arguments[1]} took more than {seconds} s")
        return ""
    return done.stdout


def _table(outcomes: list[Outcome]) -> str:
    counts = f"{'passed':>6} {'failed':>6} {'flaky':>5} {'skipped':>7} {'seconds':>7}"
    lines = ["", f"{'environment':12} {'release':14} {'constraints':18} {counts}"]
    lines += [each.line for each in outcomes]
    lines += [line for each in outcomes for line in each.details]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
