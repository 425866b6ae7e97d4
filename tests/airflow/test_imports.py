"""A DAG file is parsed every few seconds: what it imports must load neither an SDK nor what only a run needs."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.airflow.conftest import PROJECT

PROGRAM = """
import sys
import first_send, flights_pipeline, servicebus_pair_recovery
import servicebus_pair_at_scale, servicebus_pair_by_hand, servicebus_pair_cleanup, servicebus_pair_cost
import servicebus_pair_drill, servicebus_pair_provision, servicebus_pair_redrive, servicebus_pair_sends
import servicebus_pair.get_provider_info, servicebus_pair.ui.plugin
heavy = {"azure", "fastapi", "pandas", "proton", "pyarrow", "pyspark"}
late = {"servicebus_pair.hooks.openlineage"} & set(sys.modules)
print(sorted({name.partition(".")[0] for name in sys.modules} & heavy | late))
"""
# Readers of connections, prices and manifests, and all that moves messages.
OF_RUNS = [
    f"servicebus_pair.core.{name}"
    for name in (
        *(
            "administration",
            "backlog",
            "clients",
            "configuration",
            "costs",
            "endpoint_settings",
            "envelope",
            "identity",
        ),
        *("ledger_costs", "manifest", "options", "pair", "prices", "prober", "sender", "survey", "syphon"),
    )
]
SHIPPED = """
import sys, pkgutil
from servicebus_pair import decorators, hooks, links, operators, sensors, triggers
for package in (decorators, hooks, links, operators, sensors, triggers):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        __import__(module.name)
print(sorted(set(sys.modules) & set(sys.argv[1:])))
"""


def test_what_a_dag_file_may_import_loads_nothing_that_only_a_run_needs():
    ended = subprocess.run(
        [sys.executable, "-c", SHIPPED, *OF_RUNS], capture_output=True, text=True, check=False, timeout=60
    )

    assert ended.stdout.splitlines()[-1:] == ["[]"], ended.stdout + ended.stderr


def test_dag_files_provider_info_and_plugin_load_no_sdk():
    paths = [str(PROJECT / "dags"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False, timeout=60
    )

    assert ended.stdout.splitlines()[-1:] == ["[]"], ended.stdout + ended.stderr
