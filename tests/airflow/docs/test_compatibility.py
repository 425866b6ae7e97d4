"""The compatibility page agrees with the package's metadata."""

from __future__ import annotations

import importlib
import pkgutil
import re
import tomllib

import pytest

from tests.airflow.conftest import PROJECT

PAGE = (PROJECT / "provider" / "docs" / "compatibility.md").read_text()
ROWS = re.findall(r"^\| ([a-z, -]+) \| (?:exactly )?([\d.]+)[^|]* \| ([\d.]+) \|", PAGE, flags=re.MULTILINE)
PACKAGES = [(name, needed, tested) for names, needed, tested in ROWS for name in names.split(", ")]
PINNED = dict(re.findall(r"^([\w-]+)==([\w.]+)", (PROJECT / "constraints.txt").read_text(), flags=re.MULTILINE))
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
EMULATOR = tomllib.loads((PROJECT / "provider" / "servicebus_emulator" / "pyproject.toml").read_text())["project"]
DEMANDED = [
    *PYPROJECT["dependencies"],
    *EMULATOR["dependencies"],
    *(each for extra in PYPROJECT["optional-dependencies"].values() for each in extra),
]


@pytest.mark.parametrize(("name", "needed", "tested"), PACKAGES, ids=[name for name, _, _ in PACKAGES])
def test_the_versions_are_those_of_the_package(name: str, needed: str, tested: str):
    assert {f"{name}>={needed}", f"{name}=={needed}", f"{name}>={needed},<5"} & set(DEMANDED)
    assert PINNED[name] == tested


def test_the_table_lists_the_main_dependencies():
    assert {name for name, _, _ in PACKAGES} >= {"apache-airflow", "azure-servicebus", "pyspark"}


def test_the_python_versions_are_those_of_the_package():
    said = re.search(r"^Python ([\d., and]+)\.", PAGE, flags=re.MULTILINE)
    classified = [each.rpartition(" :: ")[2] for each in PYPROJECT["classifiers"] if "Python :: 3." in each]

    assert said is not None
    assert re.findall(r"3\.\d+", said[1]) == classified


# The Airflow modules of the public interface; importing every one of them needs Airflow.
AIRFLOW_PACKAGES = (
    "dags",
    "hooks",
    "operators",
    "sensors",
    "triggers",
    "decorators",
    "links",
    "notifications",
    "queues",
)


def public_modules() -> list[str]:
    package = importlib.import_module("servicebus_pair")
    named = re.findall(r"`(servicebus_pair\.(?:core[\w.]*|assets))`", PAGE.partition("## What may change")[2])
    airflow = [
        module.name
        for module in pkgutil.walk_packages(package.__path__, "servicebus_pair.")
        if not module.ispkg
        and module.name.split(".")[1] in AIRFLOW_PACKAGES
        and not any(part[0] == "_" for part in module.name.split("."))
    ]
    return sorted({*named, *airflow})


def test_the_page_names_the_public_interface_of_core():
    named = {name for name in public_modules() if name.startswith("servicebus_pair.core")}
    assert named == {f"servicebus_pair.core{room}" for room in ("", ".errors", ".events", ".pricing")}
    assert set(AIRFLOW_PACKAGES) <= set(re.findall(r"`(?:servicebus_pair\.)?(\w+)`", PAGE))


@pytest.mark.parametrize("name", public_modules())
def test_a_public_module_lists_its_names_and_has_them(name: str):
    module = importlib.import_module(name)
    assert [each for each in module.__all__ if not hasattr(module, each)] == []
