"""An Airflow that is too old is refused at every entry point; what a version lacks is known in one module."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from servicebus_pair.airflow_runtime import airflow_version
from servicebus_pair.airflow_runtime.airflow_version import MISSING, has, missing_on_page, require_airflow
from servicebus_pair.core.errors import ConfigurationError
from tests.airflow.conftest import PROJECT
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
# What Airflow documents as its public interface, as far as we use it.
PUBLIC = ("airflow.sdk", "airflow.triggers.base", "airflow.plugins_manager", "airflow.listeners", "airflow.providers")
ROOT = PROJECT / "provider" / "servicebus_pair"


def test_every_entry_point_names_the_required_and_the_installed_version():
    names = (*WAYS_IN, "core", "get_provider_info")
    reported = [line for line in run_python(PROGRAM, "3.0.6", *names).splitlines() if line.startswith(names)]

    refused, usable = reported[:-2], reported[-2:]
    needs = "RuntimeError: airflow-provider-servicebus-pair needs Airflow 3.1 or later; found 3.0.6: "
    assert [line.partition(needs)[0] for line in refused] == [f"{name}: " for name in WAYS_IN]
    assert all("upgrade Airflow, or use servicebus_pair.core" in line for line in refused)
    assert usable == ["core: imported", "get_provider_info: imported"]


@pytest.mark.parametrize("version", ["2.11.0", "3.0.6", "3.1.0", "3.2.0.dev0", "3.3.0rc1", "3.10.1", "4.0.0"])
def test_versions_before_3_1_are_refused(version: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("airflow.__version__", version)
    too_old = version.startswith(("2.", "3.0."))

    with pytest.raises(RuntimeError, match=rf"found {re.escape(version)}:") if too_old else nullcontext():
        require_airflow()


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            # Public where the newest version has it, elsewhere in others.
            yield from (f"{node.module}.{each.name}" for each in node.names if each.name in airflow_version._PLACES)
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


def test_no_other_module_imports_a_name_of_airflow_that_is_not_public():
    own = Path(airflow_version.__file__).name
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in ROOT.rglob("*.py")
        for name in _imports(path)
        if path.name != own and name.partition(".")[0] == "airflow"
        if not any(name == each or (each.endswith("providers") and name.startswith(each)) for each in PUBLIC)
    }
    assert not found


@pytest.mark.skipif(not has("asset_state"), reason="not all names are there before Airflow 3.3")
def test_every_name_is_found_where_the_newest_version_has_it():
    assert [name for name in airflow_version._PLACES if getattr(airflow_version, name) is None] == []


def test_a_name_that_a_version_lacks_names_both_versions(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("airflow.__version__", "3.2.4")

    with pytest.raises(ConfigurationError, match=r"^AssetStateStoreAccessor needs Airflow 3\.3; found 3\.2\.4$"):
        airflow_version.__getattr__("AssetStateStoreAccessor")


@pytest.mark.parametrize(("version", "lacks"), [("3.1.8", 6), ("3.2.2", 4), ("3.3.2", 0)])
def test_what_each_version_lacks(version: str, lacks: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("airflow.__version__", version)

    assert sum(not has(feature) for feature in MISSING) == lacks
    assert len(missing_on_page()) == (1 if lacks else 0)


def test_receiving_without_a_folder_is_refused_at_parse_before_3_3(monkeypatch: pytest.MonkeyPatch):
    from servicebus_pair.operators.receive import ServiceBusReceiveOperator

    monkeypatch.setattr("airflow.__version__", "3.2.4")
    ServiceBusReceiveOperator(task_id="receive", entity="orders", folder="/tmp/orders")  # noqa: S108  not written

    needs = r"state store of tasks of Airflow 3\.3; found 3\.2\.4: give it a folder"
    with pytest.raises(ConfigurationError, match=needs):
        ServiceBusReceiveOperator(task_id="receive", entity="orders")


def test_the_compatibility_page_has_the_table_of_what_is_missing():
    page = (PROJECT / "provider" / "docs" / "compatibility.md").read_text()
    rows = [f"| {each.name} | {each.since[0]}.{each.since[1]} | {each.before} |" for each in MISSING.values()]

    assert "\n".join(rows) in page
