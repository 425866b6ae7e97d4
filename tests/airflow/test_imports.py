"""A DAG file is parsed every few seconds: what it imports must not load an SDK."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.airflow.conftest import PROJECT

PROGRAM = """
import sys
import first_send, flights_pipeline, servicebus_pair_recovery
import servicebus_pair_by_hand, servicebus_pair_cleanup, servicebus_pair_cost, servicebus_pair_drill
import servicebus_pair_provision, servicebus_pair_sends
import servicebus_pair.get_provider_info, servicebus_pair.ui.plugin
heavy = {"azure", "fastapi", "pandas", "proton", "pyarrow", "pyspark"}
print(sorted({name.partition(".")[0] for name in sys.modules} & heavy))
"""


def test_dag_files_provider_info_and_plugin_load_no_sdk():
    paths = [str(PROJECT / "dags"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}

    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False, timeout=60
    )

    assert ended.stdout.splitlines()[-1:] == ["[]"], ended.stdout + ended.stderr
