"""``python -m tests.compatibility``: each supported minor version of Airflow on each supported Python, and of Spark.

In each environment (:mod:`tests.compatibility.environments`) every module is imported, every DAG parsed and an outage
survived under ``airflow dags test`` (:mod:`tests.compatibility.walk`); then the quick tests for Airflow run. For each
version of Spark the quick tests of the data source run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
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

_WALK_SECONDS: Final = 1800
_SUITE_SECONDS: Final = 3600
# Airflow 3.1 has a plugin of pytest that warns with a newer one.
_PYTEST: Final = ("-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:anyio")
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
    skipped: Counter[str] = field(default_factory=Counter)

    @property
    def line(self) -> str:
        total = sum(self.skipped.values())
        row = f"{self.environment.name:12} {self.environment.release:14} {self.environment.source:18}"
        return f"{row} {self.passed:6} {len(self.failures):6} {total:7}"


def main() -> int:
    """Run, print the table and return how many environments failed."""
    parser = argparse.ArgumentParser(description="Airflow's minor versions on each Python, and Spark's.")
    parser.add_argument("--only", default="", help="parts of the environments' names, such as 3.1-py3.12,spark-4.0")
    parser.add_argument("--walk", action="store_true", help="without the quick tests")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("tests", nargs="*", default=None)
    options = parser.parse_args()
    outcomes = []
    for environment in known_environments(options.only):
        outcome = Outcome(environment)
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
                if not options.walk:
                    tests = [*(options.tests or _AIRFLOW_TESTS), "--numprocesses", str(options.workers)]
                    _suite(outcome, Path(home), tests, marked=_QUICK)
        print(outcome.line, flush=True)
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


def _suite(outcome: Outcome, home: Path, arguments: list[str], *, marked: str) -> None:
    report = home / "report.xml"
    _run(
        outcome,
        home,
        ["-m", "pytest", *_PYTEST, "-m", marked, f"--junitxml={report}", *arguments],
        seconds=_SUITE_SECONDS,
    )
    if not report.exists():
        outcome.failures.append("the quick tests left no report")
        return
    for case in ET.parse(report).iter("testcase"):  # noqa: S314  pytest wrote it
        ended = next((each for each in case if each.tag in ("failure", "error", "skipped")), None)
        if ended is None:
            outcome.passed += 1
        elif ended.tag == "skipped":
            outcome.skipped[ended.get("message", "")] += 1
        else:
            message = " ".join(ended.get("message", "").split())[:200]
            outcome.failures.append(f"{case.get('classname')}::{case.get('name')}: {message}")


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
    lines = ["", f"{'environment':12} {'release':14} {'constraints':18} {'passed':>6} {'failed':>6} {'skipped':>7}"]
    lines += [each.line for each in outcomes]
    for each in outcomes:
        lines += [f"  {each.environment.name} skipped {count}: {reason}" for reason, count in each.skipped.items()]
        lines += [f"  {each.environment.name} FAILED {reason}" for reason in each.failures]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
