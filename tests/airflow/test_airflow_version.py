"""With an Airflow that is too old, every way in says so; the core does without Airflow (issue 5)."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from servicebus_pair.airflow_version import require_airflow
from tests.airflow.conftest import PROJECT

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


def imported(version: str, *names: str) -> list[str]:
    """What becomes of importing modules of ours where Airflow says that it is of this version."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, version, *names],
        env=dict(os.environ),
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith(names)]


def test_every_way_in_says_what_it_needs_and_what_it_found():
    told = imported("3.2.4", *WAYS_IN, "core", "get_provider_info")

    refused, usable = told[:-2], told[-2:]
    needs = "RuntimeError: airflow-provider-servicebus-pair needs Airflow 3.3 or later; found 3.2.4: tasks share"
    assert [line.partition(needs)[0] for line in refused] == [f"{name}: " for name in WAYS_IN]
    assert all("upgrade Airflow, or use servicebus_pair.core" in line for line in refused)
    assert usable == ["core: imported", "get_provider_info: imported"]


@pytest.mark.parametrize("version", ["2.11.0", "3.0.6", "3.2.4", "3.2.0.dev0"])
def test_what_is_older_is_refused(version: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("airflow.__version__", version)

    with pytest.raises(RuntimeError, match=rf"found {re.escape(version)}:"):
        require_airflow()


@pytest.mark.parametrize("version", ["3.3.0", "3.3.0rc1", "3.10.1", "4.0.0"])
def test_what_is_as_new_is_not(version: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("airflow.__version__", version)

    require_airflow()
