"""The group ``ui``: response time of the page's data route, and start-up time that the plugin adds to a component."""

from __future__ import annotations

import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Final

from tests.benchmarks.measure import Measure

_PROCESSES: Final = 7
_START_GOAL_MS: Final = 20.0
_ROUTE_GOAL_MS: Final = 300.0
_COMPONENTS: Final = {
    "scheduler": "airflow.jobs.scheduler_job_runner",
    "triggerer": "airflow.jobs.triggerer_job_runner",
    "DAG processor": "airflow.jobs.dag_processor_job_runner",
}
# What a starting component does for the plugin: load its class, create it, and register its listeners.
_PROGRAM: Final = """
import importlib, json, sys, time
from importlib.metadata import EntryPoint
importlib.import_module(sys.argv[1])
from airflow import plugins_manager
from airflow.listeners.listener import get_listener_manager
plugins_manager._get_plugins = lambda: ([], {})
listeners = get_listener_manager()
before = set(sys.modules)
started = time.perf_counter()
plugin = EntryPoint("servicebus_pair", "servicebus_pair.ui.plugin:ServiceBusPairPlugin", "airflow.plugins").load()()
plugin.on_load()
plugins_manager._get_plugins = lambda: ([plugin], {})
plugins_manager.integrate_listener_plugins(listeners)
finished = time.perf_counter()
assert listeners.has_listeners
print(json.dumps([finished - started, sorted(set(sys.modules) - before)]))
"""
_HEAVY: Final = ("azure", "fastapi", "pydantic", "servicebus_pair.core", "servicebus_pair.ui.api.routes")


def measures() -> Iterator[Measure]:
    """Measure the start of each component in several processes, and the route with 20 pairs of 50 entities."""
    heavy: set[str] = set()
    for component, module in _COMPONENTS.items():
        results = [_start(module) for _ in range(_PROCESSES)]
        yield Measure(
            name=f"start-up time that the plugin adds to the {component}",
            value=statistics.median(seconds for seconds, _ in results) * 1000,
            unit="ms",
            at_most=_START_GOAL_MS,
        )
        heavy |= {name for _, modules in results for name in _HEAVY if name in modules}
    yield Measure(name="heavy packages loaded by it", value=len(heavy), unit="packages", at_most=0)
    route = _route()
    yield Measure(name="size of the response, 20 pairs of 50 entities", value=route["bytes"] / 1000, unit="kB")
    yield Measure(name="data route, median", value=route["median_ms"], unit="ms", at_most=_ROUTE_GOAL_MS)
    yield Measure(
        name="data route, maximum of 200, namespaces unreachable, during cache refreshes",
        value=route["slowest_ms"],
        unit="ms",
        at_most=_ROUTE_GOAL_MS,
    )


def _start(module: str) -> tuple[float, list[str]]:
    finished = subprocess.run([sys.executable, "-c", _PROGRAM, module], capture_output=True, text=True, check=True)
    seconds, modules = json.loads(finished.stdout.splitlines()[-1])
    return float(seconds), list(modules)


def _route() -> dict[str, float]:
    with tempfile.TemporaryDirectory() as home:
        environment = {
            **os.environ,
            "AIRFLOW_HOME": home,
            "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": f"{home}/passwords.json",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        }
        command = [sys.executable, "-m", "tests.benchmarks.ui_route"]
        finished = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(finished.stdout.splitlines()[-1])
    return result
