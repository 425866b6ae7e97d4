"""Time to import every module that a DAG file may use, in addition to ``airflow.sdk``, in new processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Final

from tests.benchmarks.measure import Measure

_PROCESSES: Final = 15
_GOAL_MS: Final = 60.0
# airflow.sdk itself loads Airflow's provider manager: what counts is what comes after it.
_HEAVY: Final = ("azure", "fastapi", "pandas", "proton", "pyarrow", "pyspark", "airflow.providers_manager")
# Each process also measures its own baseline, airflow.sdk, so that other load affects both figures.
_PROGRAM: Final = """
import json, pkgutil, sys, time
began = time.perf_counter()
import airflow.sdk
between, busy, before = time.perf_counter(), time.process_time(), set(sys.modules)
from servicebus_pair import decorators, hooks, links, notifications, operators, sensors, triggers
for package in (decorators, hooks, links, notifications, operators, sensors, triggers):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        # Loaded by a task after its run, and only with OpenLineage.
        if module.name != "servicebus_pair.airflow_runtime.observers.openlineage":
            __import__(module.name)
ended, busy = time.perf_counter(), time.process_time() - busy
print(json.dumps([between - began, ended - between, busy, sorted(set(sys.modules) - before)]))
"""


def measures() -> Iterator[Measure]:
    """Measure the minimum over several processes, because other load only adds to it."""
    taken = [_once() for _ in range(_PROCESSES)]
    bare, ours, busy = (1000 * min(times) for times in zip(*(times for times, _ in taken), strict=True))
    heavy = {name for _, modules in taken for name in _HEAVY if name in modules}
    yield Measure(name="importing airflow.sdk alone", value=bare, unit="ms")
    yield Measure(
        name="importing all provider modules that a DAG file may use", value=ours, unit="ms", at_most=_GOAL_MS
    )
    yield Measure(name="the same, CPU time", value=busy, unit="ms", at_most=_GOAL_MS)
    yield Measure(name="SDKs and provider managers loaded by it", value=len(heavy), unit="packages", at_most=0)


def _once() -> tuple[list[float], list[str]]:
    # Use compiled modules, as a deployment does.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", _PROGRAM]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    *times, modules = json.loads(finished.stdout.splitlines()[-1])
    return [float(each) for each in times], list(modules)
