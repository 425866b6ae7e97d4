"""What importing all modules that a DAG file may use adds to ``airflow.sdk``, in fresh processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

from tests.benchmarks.measure import Measure

__all__ = ["measures"]

_TIMES: Final = 9
_GOAL_MS: Final = 60.0
# airflow.sdk itself loads Airflow's provider manager: what counts is what comes after it.
_HEAVY: Final = ("azure", "fastapi", "pandas", "proton", "pyarrow", "pyspark", "airflow.providers_manager")
# A process first imports what every DAG file does: its own baseline, so that a machine's mood is in neither figure.
_PROGRAM: Final = """
import json, pkgutil, sys, time
began = time.perf_counter()
import airflow.sdk
between, before = time.perf_counter(), set(sys.modules)
from servicebus_pair import hooks, operators, sensors, triggers
for package in (hooks, operators, sensors, triggers):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        __import__(module.name)
ended = time.perf_counter()
print(json.dumps([between - began, ended - between, sorted(set(sys.modules) - before)]))
"""


def measures() -> Iterator[Measure]:
    """Measure with the quickest of several processes: what else the machine does can only add to it."""
    taken = [_once() for _ in range(_TIMES)]
    bare = min(bare for bare, _, _ in taken) * 1000
    ours = min(ours for _, ours, _ in taken) * 1000
    heavy = {name for _, _, modules in taken for name in _HEAVY if name in modules}
    yield Measure(name="importing airflow.sdk alone", value=bare, unit="ms")
    yield Measure(
        name="importing all our hooks, operators, sensors, triggers after it", value=ours, unit="ms", at_most=_GOAL_MS
    )
    yield Measure(name="SDKs and provider managers loaded by that", value=len(heavy), unit="packages", at_most=0)


def _once() -> tuple[float, float, list[str]]:
    ended = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True)
    bare, ours, modules = json.loads(ended.stdout.splitlines()[-1])
    return float(bare), float(ours), list(modules)
