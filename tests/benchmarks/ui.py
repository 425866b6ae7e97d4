"""The group ``ui``: what the data route of the page takes, and what the plugin adds to the start of a component."""

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

__all__ = ["measures"]

_TIMES: Final = 7
_START_GOAL_MS: Final = 20.0
_ROUTE_GOAL_MS: Final = 300.0
_COMPONENTS: Final = {
    "scheduler": "airflow.jobs.scheduler_job_runner",
    "triggerer": "airflow.jobs.triggerer_job_runner",
    "DAG processor": "airflow.jobs.dag_processor_job_runner",
}
# What a component does with the plugin when it starts, after all that it has without it: finds its class, makes one,
# and listens by it.
_PROGRAM: Final = """
import importlib, json, sys, time
from importlib.metadata import EntryPoint
importlib.import_module(sys.argv[1])
from airflow import plugins_manager
from airflow.listeners.listener import get_listener_manager
plugins_manager._get_plugins = lambda: ([], {})
listeners = get_listener_manager()
before = set(sys.modules)
began = time.perf_counter()
plugin = EntryPoint("servicebus_pair", "servicebus_pair.ui.plugin:ServiceBusPairPlugin", "airflow.plugins").load()()
plugin.on_load()
plugins_manager._get_plugins = lambda: ([plugin], {})
plugins_manager.integrate_listener_plugins(listeners)
ended = time.perf_counter()
assert listeners.has_listeners
print(json.dumps([ended - began, sorted(set(sys.modules) - before)]))
"""
_HEAVY: Final = ("azure", "fastapi", "pydantic", "servicebus_pair.core", "servicebus_pair.ui.api")


def measures() -> Iterator[Measure]:
    """Measure the start of each component in several processes, and the route with 20 pairs of 50 entities."""
    heavy: set[str] = set()
    for component, module in _COMPONENTS.items():
        taken = [_start(module) for _ in range(_TIMES)]
        yield Measure(
            name=f"what the plugin adds to the start of the {component}",
            value=statistics.median(seconds for seconds, _ in taken) * 1000,
            unit="ms",
            at_most=_START_GOAL_MS,
        )
        heavy |= {name for _, modules in taken for name in _HEAVY if name in modules}
    yield Measure(name="heavy packages loaded by that", value=len(heavy), unit="packages", at_most=0)
    route = _route()
    yield Measure(name="size of the answer, 20 pairs of 50 entities", value=route["bytes"] / 1000, unit="kB")
    yield Measure(name="the data route, median", value=route["median_ms"], unit="ms", at_most=_ROUTE_GOAL_MS)
    yield Measure(
        name="the data route, slowest of 200, namespaces dead, cache refreshed meanwhile",
        value=route["slowest_ms"],
        unit="ms",
        at_most=_ROUTE_GOAL_MS,
    )


def _start(module: str) -> tuple[float, list[str]]:
    ended = subprocess.run([sys.executable, "-c", _PROGRAM, module], capture_output=True, text=True, check=True)
    seconds, modules = json.loads(ended.stdout.splitlines()[-1])
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
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(ended.stdout.splitlines()[-1])
    return found
