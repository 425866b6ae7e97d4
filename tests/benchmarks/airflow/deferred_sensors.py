"""Memory, CPU time and pings of a triggerer that runs hundreds of deferred sensors during an outage.

Scheduler, triggerer and API server run on SQLite; the embedded Service Bus is a separate process that refuses every
message during the outage and counts the pings. First one sensor is deferred, then five hundred. Figures of the
triggerer include both of its processes: the one that runs the triggers, and the one with the database connection. All
sensors wait for one entity, because azure-servicebus (7.15) opens a connection for each link: several entities would
have several connections during a ping.
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
from tests.system.demo.airflow_api import DagRun
from tests.system.demo.airflow_process import TRIGGERER
from tests.system.demo.layout import PROJECT
from tests.system.platform.leftovers import metric, wait_until
from tests.system.platform.platform import Platform, platform

_DAGS: Final = PROJECT / "tests" / "benchmarks" / "airflow" / "dags"
_ONE: Final = "one_sensor"
_MANY: Final = "many_sensors"
_SENSORS: Final = 500
_SAMPLE_SECONDS: Final = 60.0
_START_TIMEOUT: Final = 150.0
_RESUME_GOAL_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Usage:
    """Usage of a triggerer during a sample."""

    proportional: float  # memory, MB
    resident: float  # memory, MB
    unique: float  # memory, MB
    cpu: float  # % of a core
    primary_connections: int  # maximum
    secondary_connections: int  # maximum
    pings: float  # per minute


def measures() -> Iterator[Measure]:
    """Start a complete Airflow, and measure the triggerer with one deferred sensor and with many."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "home"
        with platform(root, dags=_DAGS, dag_ids=[_ONE, _MANY]) as system:
            yield from _measure(system)


def _measure(system: Platform) -> Iterator[Measure]:
    primary = system.stack.primary
    primary.served.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR))
    _start(system, _ONE, sensors=1)
    one = _sample(system)
    started_at = time.monotonic()
    run = _start(system, _MANY, sensors=_SENSORS)
    started = time.monotonic() - started_at
    many = _sample(system)
    primary.served.clear_faults()
    resumed = _wait_until_resumed(system, run)
    yield Measure(name="deferred health sensors on one triggerer", value=_SENSORS, unit="sensors", at_least=_SENSORS)
    yield Measure(name="time from the start of their run until all are deferred", value=started, unit="s")
    yield Measure(name="triggerer with one sensor, unique memory", value=one.unique, unit="MB")
    yield Measure(name="triggerer with all sensors, unique memory", value=many.unique, unit="MB")
    yield Measure(name="triggerer with all sensors, proportional memory", value=many.proportional, unit="MB")
    yield Measure(name="triggerer with all sensors, resident memory", value=many.resident, unit="MB")
    each = (many.unique - one.unique) / _SENSORS * 1000
    yield Measure(name="unique memory per sensor", value=each, unit="kB")
    yield Measure(name="triggerer with one sensor, CPU", value=one.cpu, unit="% of a core")
    yield Measure(name="triggerer with all sensors, CPU", value=many.cpu, unit="% of a core")
    yield Measure(
        name="concurrent connections to the primary", value=many.primary_connections, unit="connections", at_most=1
    )
    yield Measure(
        name="concurrent connections to the secondary", value=many.secondary_connections, unit="connections", at_most=1
    )
    yield Measure(name="pings of the entity, one sensor", value=one.pings, unit="per minute")
    yield Measure(name="pings of the entity, all sensors", value=many.pings, unit="per minute")
    yield Measure(name="pings, all sensors / one sensor", value=many.pings / one.pings, unit="times", at_most=1.1)
    yield Measure(
        name="time from the end of the outage until the last one resumed",
        value=resumed,
        unit="s",
        at_most=_RESUME_GOAL_SECONDS,
    )


def _start(system: Platform, dag_id: str, *, sensors: int) -> DagRun:
    """Start a run; return it when all of its triggers run and pings are sent."""
    logs = system.stack.home.airflow / "logs" / f"dag_id={dag_id}"
    run = system.api.trigger(dag_id, conf={})
    # Each trigger writes its own log file when it starts.
    wait_until(
        lambda: sum(1 for _ in logs.rglob("*.trigger.*")) >= sensors,
        seconds=_START_TIMEOUT,
        what=f"{sensors} triggers start",
        detail=lambda: system.api.states(run),
    )
    _next_ping(system)
    return run


def _sample(system: Platform) -> _Usage:
    """Measure the triggerer from one ping to another, so that the ping rate has no rounding error at the edges."""
    primary, secondary = system.stack.primary, system.stack.secondary
    first, first_at = _next_ping(system)
    cpu_seconds = _cpu_seconds(system)
    primary_connections = secondary_connections = 0
    while time.monotonic() - first_at < _SAMPLE_SECONDS:
        primary_connections = max(primary_connections, int(metric(primary, "connections")))
        secondary_connections = max(secondary_connections, int(metric(secondary, "connections")))
        time.sleep(0.2)
    cpu = (_cpu_seconds(system) - cpu_seconds) / (time.monotonic() - first_at) * 100
    last, last_at = _next_ping(system)
    memory = [each.memory_full_info() for each in _triggerer(system)]
    return _Usage(
        proportional=sum(each.pss for each in memory) / 1e6,
        resident=sum(each.rss for each in memory) / 1e6,
        unique=sum(each.uss for each in memory) / 1e6,
        cpu=cpu,
        primary_connections=primary_connections,
        secondary_connections=secondary_connections,
        pings=(last - first) / (last_at - first_at) * 60,
    )


def _next_ping(system: Platform) -> tuple[float, float]:
    """Wait for the next ping; return the number of pings so far and its time."""
    primary = system.stack.primary
    before = metric(primary, "faults_struck_total")
    wait_until(
        lambda: metric(primary, "faults_struck_total") > before, seconds=_START_TIMEOUT, what="the triggers ping"
    )
    return metric(primary, "faults_struck_total"), time.monotonic()


def _wait_until_resumed(system: Platform, run: DagRun) -> float:
    """Wait until no sensor of the run is deferred; return the seconds."""
    started_at = time.monotonic()
    states: Counter[str] = Counter()

    def resumed() -> bool:
        nonlocal states
        states = system.api.states(run)
        return states["deferred"] == 0

    wait_until(resumed, seconds=3 * _RESUME_GOAL_SECONDS, what="all sensors resume", detail=lambda: states)
    return time.monotonic() - started_at


def _triggerer(system: Platform) -> list[psutil.Process]:
    return system.stack.processes.members(TRIGGERER)


def _cpu_seconds(system: Platform) -> float:
    times = [each.cpu_times() for each in _triggerer(system)]
    return float(sum(each.user + each.system for each in times))
