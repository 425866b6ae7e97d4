"""DESIGN section 2: core knows neither Airflow nor Spark, and parsing a DAG file loads no SDK."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys

import pytest

import servicebus_pair.core

MODULES = sorted(
    f"servicebus_pair.core.{module.name}" for module in pkgutil.iter_modules(servicebus_pair.core.__path__)
)
# What a DAG file may reach while it is parsed.
LIGHT = [
    "servicebus_pair",
    "servicebus_pair.core",
    "servicebus_pair.core.backlog",
    "servicebus_pair.core.blocking",
    "servicebus_pair.core.configuration",
    "servicebus_pair.core.durations",
    "servicebus_pair.core.errors",
    "servicebus_pair.core.events",
    "servicebus_pair.core.health",
    "servicebus_pair.core.ledger",
    "servicebus_pair.core.options",
    "servicebus_pair.core.ports",
    "servicebus_pair.core.results",
    "servicebus_pair.core.rotation",
]

TELL = """
import importlib, json, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""


def loaded_by(*modules: str, program: str = TELL) -> set[str]:
    """The top-level packages that a fresh interpreter holds after importing ``modules``."""
    told = subprocess.run(
        [sys.executable, "-c", program, *modules],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    return set(json.loads(told.stdout))


def test_what_a_dag_file_reaches_loads_no_sdk() -> None:
    assert loaded_by(*LIGHT) & {"aiohttp", "airflow", "azure", "numpy", "pandas", "pyspark"} == set()


def test_all_of_core_together_loads_neither_airflow_nor_spark_nor_a_sister() -> None:
    loaded = loaded_by(*MODULES)
    assert "azure" in loaded
    assert loaded & {"airflow", "proton", "pyspark", "pyspark_servicebus", "servicebus_emulator"} == set()


def test_a_public_name_loads_the_sdk_only_when_it_is_used() -> None:
    program = TELL + "from servicebus_pair.core import NamespacePair\n"
    program = program.replace("print(", "before = 'azure' in sys.modules\nprint(", 1)
    program += "print(json.dumps([str(before), str('azure' in sys.modules)]))\n"
    told = subprocess.run(
        [sys.executable, "-c", program, "servicebus_pair.core"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert json.loads(told.stdout.splitlines()[-1]) == ["False", "True"]


@pytest.mark.parametrize("module", MODULES)
def test_a_module_of_core_can_be_imported_first(module: str) -> None:
    assert "servicebus_pair" in loaded_by(module)
