"""Time and memory to publish, divert, drain and reconcile many messages, and their growth with the number of messages.

The primary is down while all of them are published. Each number of messages is measured in a process of its own, with
its own Spark and namespaces, after a warm-up with few messages.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Final

from tests.benchmarks.measure import Measure
from tests.benchmarks.spark.outage import OutageRun

_TENTH: Final = 10
_MEGABYTE: Final = 1_000_000
_MAX_MEGABYTES: Final = 1500
_MAX_GROWTH: Final = 1.15


def measures(count: int) -> Iterator[Measure]:
    """Run the outage with a tenth of the messages and with all of them."""
    few = _measure_run(count // _TENTH)
    yield from _figures(few)
    many = _measure_run(count)
    yield from _figures(many)
    memory = {
        "driver and executor (one JVM), Python driver": many.driver_peak,
        "all Python workers": many.workers_peak,
    }
    for name, peak in memory.items():
        yield Measure(
            name=f"{many.messages}: peak memory, {name}", value=peak / _MEGABYTE, unit="MB", at_most=_MAX_MEGABYTES
        )
    yield Measure(
        name=f"{many.messages}: peak memory, both namespaces", value=many.namespaces_peak / _MEGABYTE, unit="MB"
    )
    yield from _growth("time", few.seconds, many.seconds, few=few.messages, many=many.messages)
    yield from _growth("CPU time", few.cpu, many.cpu, few=few.messages, many=many.messages)


def _growth(
    what: str, before: Mapping[str, float], after: Mapping[str, float], *, few: int, many: int
) -> Iterator[Measure]:
    spent = {phase: (before[phase], after[phase]) for phase in after}
    spent["in total"] = (sum(before.values()), sum(after.values()))
    for phase, (first, second) in spent.items():
        name = f"{what} per message of {many} / of {few}, {phase}"
        yield Measure(name=name, value=(second / many) / (first / few), unit="ratio", at_most=_MAX_GROWTH)


def _figures(run: OutageRun) -> Iterator[Measure]:
    count = run.messages
    for phase, seconds in run.seconds.items():
        yield Measure(name=f"{count}: {phase}", value=seconds, unit="s")
        name = f"{count}: {phase}, CPU time of all processes"
        yield Measure(name=name, value=run.cpu[phase] / count * 1e6, unit="us per message")
    yield Measure(name=f"{count}: in total", value=sum(run.seconds.values()), unit="s")
    for name, value in (
        ("diverted", run.diverted),
        ("moved by the drain", run.moved),
        ("delivered", run.delivered),
    ):
        yield Measure(name=f"{count}: {name}", value=value, unit="messages", at_least=count)
    yield Measure(name=f"{count}: lost", value=run.lost, unit="messages", at_most=0)
    yield Measure(name=f"{count}: duplicates", value=run.duplicates, unit="messages")


def _measure_run(count: int) -> OutageRun:
    command = [sys.executable, "-m", "tests.benchmarks.spark.outage", str(count)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return OutageRun(**json.loads(done.stdout.splitlines()[-1]))
