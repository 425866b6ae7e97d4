"""Contents, requirements and entry points of the two distributions, provider and emulator."""

from __future__ import annotations

import email
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from email.message import Message
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.system.demo.layout import PROJECT

PROVIDER_PACKAGES = ("airflow_provider_servicebus_pair", "pyspark_servicebus", "servicebus_pair")
EMULATOR = PROJECT / "provider" / "servicebus_emulator"
SOURCES = ("CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", "provider")
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"
IGNORED = shutil.ignore_patterns("__pycache__", "*.egg-info", "build")


def build(kind: str, source: Path, target: Path) -> Path:
    """Build a distribution like an installer, without network access."""
    command = [sys.executable, "-W", "ignore", "-c", BUILD, f"build_{kind}", str(target)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return target / done.stdout.splitlines()[-1]


def wheel_from_sdist(source: Path, scratch: Path) -> zipfile.ZipFile:
    for folder in ("sdist", "unpacked", "wheel"):
        (scratch / folder).mkdir()
    with tarfile.open(build("sdist", source, scratch / "sdist")) as archive:
        archive.extractall(scratch / "unpacked")  # noqa: S202  built by this test
    [root] = (scratch / "unpacked").iterdir()
    return zipfile.ZipFile(build("wheel", root, scratch / "wheel"))


@pytest.fixture(scope="module")
def provider_wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        path = PROJECT / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=IGNORED)
        else:
            shutil.copy(path, source / name)
    with wheel_from_sdist(source, tmp_path_factory.mktemp("provider")) as wheel:
        yield wheel


@pytest.fixture(scope="module")
def emulator_wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    source = tmp_path_factory.mktemp("source") / "servicebus_emulator"
    shutil.copytree(EMULATOR, source, ignore=IGNORED)
    with wheel_from_sdist(source, tmp_path_factory.mktemp("emulator")) as wheel:
        yield wheel


def metadata(wheel: zipfile.ZipFile) -> Message:
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return email.message_from_bytes(wheel.read(name))


def dependencies(wheel: zipfile.ZipFile) -> set[str]:
    """Return the names of the requirements without extras."""
    required = [str(value) for value in metadata(wheel).get_all("Requires-Dist", [])]
    return {re.split("[<>=;]", value)[0].strip() for value in required if "extra ==" not in value}


def content(wheel: zipfile.ZipFile) -> set[str]:
    return {name for name in wheel.namelist() if ".dist-info/" not in name}


def files_below(package: str) -> set[str]:
    return {
        str(path.relative_to(PROJECT / "provider"))
        for path in (PROJECT / "provider" / package).rglob("*")
        if path.is_file() and not {"__pycache__", "build"} & set(path.parts) and ".egg-info" not in str(path)
    }


def test_provider_wheel_contains_exactly_its_packages(provider_wheel: zipfile.ZipFile) -> None:
    assert content(provider_wheel) == set().union(*map(files_below, PROVIDER_PACKAGES))
    assert {f"{package}/py.typed" for package in PROVIDER_PACKAGES} <= content(provider_wheel)


def test_emulator_wheel_contains_exactly_its_modules(emulator_wheel: zipfile.ZipFile) -> None:
    modules = {
        name
        for name in files_below("servicebus_emulator")
        if name.endswith((".py", "py.typed", "page.html", "page.js"))
    }
    assert content(emulator_wheel) == modules


def test_provider_requirements(provider_wheel: zipfile.ZipFile) -> None:
    described = metadata(provider_wheel)
    assert {"emulator", "spark"} <= set(described.get_all("Provides-Extra", []))
    required = "aiohttp apache-airflow azure-identity azure-mgmt-servicebus azure-servicebus certifi cryptography"
    assert dependencies(provider_wheel) == {*required.split(), "fsspec", "pendulum"}
    emulator = [value for value in described.get_all("Requires-Dist", []) if str(value).startswith("servicebus-")]
    assert emulator == ['servicebus-emulator; extra == "emulator"']
    assert described["License-Expression"] == "Apache-2.0"
    assert str(described.get_payload()).startswith("# Paired namespaces for Azure Service Bus")


def test_emulator_requirements(emulator_wheel: zipfile.ZipFile) -> None:
    described = metadata(emulator_wheel)
    required = "aiohttp cryptography prometheus-client pyjwt python-qpid-proton trustme wsproto"
    assert dependencies(emulator_wheel) == set(required.split())
    assert described["License-Expression"] == "Apache-2.0"
    assert str(described.get_payload()).startswith("# ")
    [license_file] = [name for name in emulator_wheel.namelist() if name.endswith("/LICENSE")]
    assert emulator_wheel.read(license_file) == (PROJECT / "LICENSE").read_bytes()


def test_entry_points_are_unique() -> None:
    found = {
        group: [entry.value for entry in entry_points(group=group) if "servicebus" in entry.value]
        for group in ("apache_airflow_provider", "airflow.plugins", "pytest11", "console_scripts")
    }

    assert found == {
        "apache_airflow_provider": ["servicebus_pair.get_provider_info:get_provider_info"],
        "airflow.plugins": ["servicebus_pair.ui.plugin:ServiceBusPairPlugin"],
        "pytest11": ["servicebus_emulator.pytest_plugin"],
        "console_scripts": ["servicebus_emulator.__main__:main"],
    }
