"""DESIGN section 2: core knows neither Airflow nor Spark, and parsing a DAG file loads no SDK."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys

import servicebus_pair.core

MODULES = sorted(
    module.name for module in pkgutil.walk_packages(servicebus_pair.core.__path__, "servicebus_pair.core.")
)
# What a DAG file may reach while it is parsed.
LIGHT = [
    "servicebus_pair",
    "servicebus_pair.core",
    "servicebus_pair.core.protocol.backlog_queues",
    "servicebus_pair.core.pair.sync_bridge",
    "servicebus_pair.core.pair.settings",
    "servicebus_pair.core.protocol.iso_duration",
    "servicebus_pair.core.pair.endpoint_settings",
    "servicebus_pair.core.model.errors",
    "servicebus_pair.core.model.events",
    "servicebus_pair.core.model.health_state",
    "servicebus_pair.core.sdk.credentials",
    "servicebus_pair.core.ledger.writer",
    "servicebus_pair.core.model.options",
    "servicebus_pair.core.model.interfaces",
    "servicebus_pair.core.model.results",
    "servicebus_pair.core.send.queue_selector",
]

LOADED = """
import importlib, json, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
LAZY = """
import json, sys
import servicebus_pair.core
before = "azure" in sys.modules
servicebus_pair.core.NamespacePair
print(json.dumps([before, "azure" in sys.modules]))
"""
EACH_FIRST = """
import importlib, json, sys
first = []
for name in sys.argv[1:]:
    for loaded in [loaded for loaded in sys.modules if loaded.partition(".")[0] == "servicebus_pair"]:
        del sys.modules[loaded]
    first.append(importlib.import_module(name).__name__)
print(json.dumps(first))
"""


def output_of(program: str, *arguments: str) -> list[object]:
    """Return what a new interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    return list(json.loads(done.stdout))


def test_what_a_dag_file_reaches_loads_no_sdk() -> None:
    assert set(output_of(LOADED, *LIGHT)) & {"aiohttp", "airflow", "azure", "numpy", "pandas", "pyspark"} == set()


def test_all_of_core_together_loads_neither_airflow_nor_spark_nor_a_sister() -> None:
    loaded = set(output_of(LOADED, *MODULES))
    assert "azure" in loaded
    assert loaded & {"airflow", "proton", "pyspark", "pyspark_servicebus", "servicebus_emulator"} == set()


def test_a_public_name_loads_the_sdk_only_when_it_is_used() -> None:
    assert output_of(LAZY) == [False, True]


def test_each_module_of_core_can_be_imported_first() -> None:
    assert output_of(EACH_FIRST, *MODULES) == MODULES
