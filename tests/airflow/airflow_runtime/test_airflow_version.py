"""An Airflow that is too old is refused at every entry point; the core works without Airflow."""

from __future__ import annotations

import re
from contextlib import nullcontext

import pytest

from servicebus_pair.airflow_runtime.airflow_version import require_airflow
from tests.airflow.support.python_process import run_python

WAYS_IN = (
    "decorators.servicebus_send",
    "hooks.servicebus_pair",
    "links.servicebus_pair",
    "operators.send",
    "sensors.backlog",
    "triggers.backlog",
    "ui.plugin",
)
PROGRAM = """
import sys
from importlib import import_module
import airflow
airflow.__version__ = sys.argv[1]
for name in sys.argv[2:]:
    try:
        import_module(f"servicebus_pair.{name}")
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {error}")
    else:
        print(f"{name}: imported")
"""


def test_every_entry_point_names_the_required_and_the_installed_version():
    names = (*WAYS_IN, "core", "get_provider_info")
    reported = [line for line in run_python(PROGRAM, "3.2.4", *names).splitlines() if line.startswith(names)]

    refused, usable = reported[:-2], reported[-2:]
    needs = "RuntimeError: airflow-provider-servicebus-pair needs Airflow 3.3 or later; found 3.2.4: tasks share"
    assert [line.partition(needs)[0] for line in refused] == [f"{name}: " for name in WAYS_IN]
    assert all("upgrade Airflow, or use servicebus_pair.core" in line for line in refused)
    assert usable == ["core: imported", "get_provider_info: imported"]


@pytest.mark.parametrize("version", ["2.11.0", "3.2.0.dev0", "3.2.4", "3.3.0rc1", "3.3.0", "3.10.1", "4.0.0"])
def test_versions_before_3_3_are_refused(version: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("airflow.__version__", version)
    too_old = version.startswith(("2.", "3.2."))

    with pytest.raises(RuntimeError, match=rf"found {re.escape(version)}:") if too_old else nullcontext():
        require_airflow()
