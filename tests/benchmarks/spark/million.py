"""Many messages published, diverted, drained and reconciled: what it takes, and how that grows with their number.

The primary is dead while all of them are published. Each number is a program of its own, with its own Spark and
its own two namespaces, after a first passage of few messages that pays for what is paid once per process.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Final

from tests.benchmarks.measure import Measure
from tests.benchmarks.spark.through import Passage

__all__ = ["measures"]

_TENTH: Final = 10
_MEGABYTE: Final = 1_000_000
_MOST_MEGABYTES: Final = 1500
_MOST_GROWTH: Final = 1.15


def measures(count: int) -> Iterator[Measure]:
    """Run the outage with a tenth of the messages and with all of them."""
    few = _passage(count // _TENTH)
    yield from _of(few)
    many = _passage(count)
    yield from _of(many)
    memory = {
        "driver and executor (one JVM), Python driver": many.driver_peak,
        "all Python workers": many.workers_peak,
    }
    for name, peak in memory.items():
        yield Measure(
            name=f"{many.messages}: peak memory, {name}", value=peak / _MEGABYTE, unit="MB", at_most=_MOST_MEGABYTES
        )
    yield Measure(
        name=f"{many.messages}: peak memory, both namespaces", value=many.namespaces_peak / _MEGABYTE, unit="MB"
    )
    yield from _growth("time", few.seconds, many.seconds, few=few.messages, many=many.messages)
    yield from _growth("processor time", few.processor, many.processor, few=few.messages, many=many.messages)


def _growth(
    what: str, before: Mapping[str, float], after: Mapping[str, float], *, few: int, many: int
) -> Iterator[Measure]:
    spent = {phase: (before[phase], after[phase]) for phase in after}
    spent["in total"] = (sum(before.values()), sum(after.values()))
    for phase, (first, second) in spent.items():
        name = f"{what} per message of {many} / of {few}, {phase}"
        yield Measure(name=name, value=(second / many) / (first / few), unit="ratio", at_most=_MOST_GROWTH)


def _of(passage: Passage) -> Iterator[Measure]:
    count = passage.messages
    for phase, seconds in passage.seconds.items():
        yield Measure(name=f"{count}: {phase}", value=seconds, unit="s")
        name = f"{count}: {phase}, processor time of all processes"
        yield Measure(name=name, value=passage.processor[phase] / count * 1e6, unit="us per message")
    yield Measure(name=f"{count}: in total", value=sum(passage.seconds.values()), unit="s")
    for name, value in (
        ("diverted", passage.diverted),
        ("moved by the drain", passage.moved),
        ("delivered", passage.delivered),
    ):
        yield Measure(name=f"{count}: {name}", value=value, unit="messages", at_least=count)
    yield Measure(name=f"{count}: lost", value=passage.lost, unit="messages", at_most=0)
    yield Measure(name=f"{count}: duplicates", value=passage.duplicates, unit="messages")


def _passage(count: int) -> Passage:
    command = [sys.executable, "-m", "tests.benchmarks.spark.through", str(count)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Passage(**json.loads(ended.stdout.splitlines()[-1]))
