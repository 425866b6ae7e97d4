"""DAG files are parsed often, so their imports load no SDK and nothing that only a run needs."""

from __future__ import annotations

import os

from tests.airflow.conftest import PROJECT
from tests.airflow.support.python_process import run_python

PROGRAM = """
import sys
import flights_pipeline, operations
import servicebus_pair.example_dags.first_send, servicebus_pair.example_dags.servicebus_pair_operations
import servicebus_pair.example_dags.servicebus_pair_sends, servicebus_pair.example_dags.three_pairs
import servicebus_pair.get_provider_info, servicebus_pair.ui.plugin
heavy = {"azure", "fastapi", "pandas", "proton", "pyarrow", "pyspark"}
late = {"servicebus_pair.airflow_runtime.observers.openlineage"} & set(sys.modules)
print(sorted({name.partition(".")[0] for name in sys.modules} & heavy | late))
"""
# Readers of connections, prices and manifests, and all that moves messages.
OF_RUNS = [
    f"servicebus_pair.core.{name}"
    for name in (
        "ledger.manifest",
        "ledger.usage",
        "model.options",
        "model.pricing",
        "pair.endpoint_settings",
        "pair.namespace_pair",
        "pair.settings",
        "health.prober",
        "protocol.backlog_message",
        "protocol.backlog_queues",
        "sdk.administration.data_plane",
        "sdk.credentials",
        "sdk.namespace_client",
        "send.sender",
        "syphon.drain",
        "syphon.survey",
    )
]
SHIPPED = """
import sys, pkgutil
from servicebus_pair import dags, decorators, hooks, links, notifications, operators, sensors, triggers
for package in (dags, decorators, hooks, links, notifications, operators, sensors, triggers):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        __import__(module.name)
print(sorted(set(sys.modules) & set(sys.argv[1:])))
"""


def test_importing_public_modules_loads_no_runtime_dependencies():
    assert run_python(SHIPPED, *OF_RUNS).splitlines()[-1:] == ["[]"]


def test_dag_files_provider_info_and_plugin_load_no_sdk():
    paths = [str(PROJECT / "dags"), *filter(None, [os.environ.get("PYTHONPATH")])]

    assert run_python(PROGRAM, PYTHONPATH=os.pathsep.join(paths)).splitlines()[-1:] == ["[]"]
