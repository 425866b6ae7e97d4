"""Hundreds of deferred sensors on one real triggerer, during an outage: its memory, processor time and pings.

Everything is real: scheduler, triggerer and API server on SQLite, and the embedded Service Bus as a process of its
own, which refuses every message as long as the outage lasts. First one sensor waits, then five hundred: the namespace
counts the pings of both. Figures of the triggerer are of both of its processes, the one that runs the triggers and the
one that speaks with the database. All wait for one entity: azure-servicebus (7.15) opens a connection for each link, so
there would be as many connections as entities, for the moment of a ping.
"""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from servicebus_emulator import Fault, FaultKind
from tests.benchmarks.measure import Measure
from tests.system.demo.airflow_service import TRIGGERER
from tests.system.demo.layout import PROJECT
from tests.system.demo.rest import DagRun
from tests.system.whole.platform import Platform, platform
from tests.system.whole.traces import metric, until

__all__ = ["measures"]

_DAGS: Final = PROJECT / "tests" / "benchmarks" / "airflow" / "dags"
_ONE: Final = "one_sensor"
_MANY: Final = "many_sensors"
_SENSORS: Final = 500
_WINDOW: Final = 60.0
_STARTED_SECONDS: Final = 150.0
_WOKEN_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watch:
    """What a triggerer did while somebody looked."""

    memory: float  # proportional, MB
    resident: float  # MB
    unique: float  # MB
    processor: float  # % of a core
    connections: int  # at most, to the primary
    elsewhere: int  # at most, to the secondary
    pings: float  # per minute


def measures() -> Iterator[Measure]:
    """Start a whole Airflow, let one sensor wait and then many, and look at the triggerer each time."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "home"
        with platform(root, dags=_DAGS, wanted=[_ONE, _MANY]) as whole:
            yield from _waiting(whole)


def _waiting(whole: Platform) -> Iterator[Measure]:
    primary = whole.stack.primary
    primary.served.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR))
    _start(whole, _ONE, sensors=1)
    one = _watch(whole)
    began = time.monotonic()
    run = _start(whole, _MANY, sensors=_SENSORS)
    started = time.monotonic() - began
    many = _watch(whole)
    primary.served.clear_faults()
    woken = _wake(whole, run)
    yield Measure(name="deferred health sensors on one triggerer", value=_SENSORS, unit="sensors", at_least=_SENSORS)
    yield Measure(name="from the start of their run until all of them wait", value=started, unit="s")
    yield Measure(name="the triggerer with one sensor, unique memory", value=one.unique, unit="MB")
    yield Measure(name="the triggerer with all of them, unique memory", value=many.unique, unit="MB")
    yield Measure(name="the triggerer with all of them, proportional memory", value=many.memory, unit="MB")
    yield Measure(name="the triggerer with all of them, resident memory", value=many.resident, unit="MB")
    each = (many.unique - one.unique) / _SENSORS * 1000
    yield Measure(name="unique memory that a sensor adds", value=each, unit="kB")
    yield Measure(name="the triggerer with one sensor, processor", value=one.processor, unit="% of a core")
    yield Measure(name="the triggerer with all of them, processor", value=many.processor, unit="% of a core")
    yield Measure(name="connections to the primary at once", value=many.connections, unit="connections", at_most=1)
    yield Measure(name="connections to the secondary at once", value=many.elsewhere, unit="connections", at_most=1)
    yield Measure(name="pings of the entity, one sensor", value=one.pings, unit="per minute")
    yield Measure(name="pings of the entity, all of them", value=many.pings, unit="per minute")
    yield Measure(name="pings, in those of one sensor", value=many.pings / one.pings, unit="times", at_most=1.1)
    yield Measure(
        name="from the end of the outage until the last of them woke", value=woken, unit="s", at_most=_WOKEN_SECONDS
    )


def _start(whole: Platform, dag_id: str, *, sensors: int) -> DagRun:
    """Start a run; return it once every trigger of it runs, and pings are sent."""
    logs = whole.stack.home.airflow / "logs" / f"dag_id={dag_id}"
    run = whole.api.trigger(dag_id, conf={})
    # Each trigger has a log of its own, which begins with that it starts.
    until(
        lambda: sum(1 for _ in logs.rglob("*.trigger.*")) >= sensors,
        seconds=_STARTED_SECONDS,
        what=f"{sensors} triggers start",
        detail=lambda: whole.api.states(run),
    )
    pinged = metric(whole.stack.primary, "faults_struck_total")
    until(
        lambda: metric(whole.stack.primary, "faults_struck_total") > pinged,
        seconds=_STARTED_SECONDS,
        what="the triggers ping",
    )
    return run


def _watch(whole: Platform) -> _Watch:
    """Look at the triggerer for a while, from one ping to another: so the edges of the window count no ping twice."""
    primary, secondary = whole.stack.primary, whole.stack.secondary
    first, began = _next_ping(whole)
    busy = _processor(whole)
    connections = elsewhere = 0
    while time.monotonic() - began < _WINDOW:
        connections = max(connections, int(metric(primary, "connections")))
        elsewhere = max(elsewhere, int(metric(secondary, "connections")))
        time.sleep(0.2)
    passed = time.monotonic() - began
    processor = (_processor(whole) - busy) / passed * 100
    last, ended = _next_ping(whole)
    memory = [each.memory_full_info() for each in _members(whole)]
    return _Watch(
        memory=sum(each.pss for each in memory) / 1e6,
        resident=sum(each.rss for each in memory) / 1e6,
        unique=sum(each.uss for each in memory) / 1e6,
        processor=processor,
        connections=connections,
        elsewhere=elsewhere,
        pings=(last - first) / (ended - began) * 60,
    )


def _next_ping(whole: Platform) -> tuple[float, float]:
    """Wait for the next ping; return how many there were, and when it was."""
    primary = whole.stack.primary
    before = metric(primary, "faults_struck_total")
    until(lambda: metric(primary, "faults_struck_total") > before, seconds=60, what="the triggers ping")
    return metric(primary, "faults_struck_total"), time.monotonic()


def _wake(whole: Platform, run: DagRun) -> float:
    """Wait until no sensor of the run waits any more; return how many seconds that took."""
    began = time.monotonic()
    states: Counter[str] = Counter()

    def woken() -> bool:
        nonlocal states
        states = whole.api.states(run)
        return states["deferred"] == 0

    until(woken, seconds=3 * _WOKEN_SECONDS, what="all sensors wake", detail=lambda: states)
    return time.monotonic() - began


def _members(whole: Platform) -> list[psutil.Process]:
    return whole.stack.processes.members(TRIGGERER)


def _processor(whole: Platform) -> float:
    times = [each.cpu_times() for each in _members(whole)]
    return float(sum(each.user + each.system for each in times))
