"""What users install: the source distribution, the wheel that is built from it, and what Airflow finds in it."""

from __future__ import annotations

import email
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

PACKAGES = ("pyspark_servicebus", "servicebus_emulator", "servicebus_pair")
NEEDED = ("CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", "provider")
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


def build(kind: str, source: Path, into: Path) -> Path:
    """Build a distribution as an installer would, but without its network."""
    command = [sys.executable, "-W", "ignore", "-c", BUILD, f"build_{kind}", str(into)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return into / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("source")
    for name in NEEDED:
        place = PROJECT / name
        if place.is_dir():
            shutil.copytree(place, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(place, source / name)
    return build("sdist", source, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked)  # noqa: S202  made here
    [root] = unpacked.iterdir()
    with zipfile.ZipFile(build("wheel", root, tmp_path_factory.mktemp("wheel"))) as opened:
        yield opened


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    return email.message_from_bytes(wheel.read(name))


def test_the_wheel_from_the_source_distribution_holds_every_file_of_the_packages_and_nothing_else(
    wheel: zipfile.ZipFile,
) -> None:
    ours = {
        str(path.relative_to(PROJECT / "provider"))
        for package in PACKAGES
        for path in (PROJECT / "provider" / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == ours
    assert {f"{package}/py.typed" for package in ours_at_the_top(ours)} <= ours


def ours_at_the_top(names: set[str]) -> set[str]:
    return {name.partition("/")[0] for name in names}


def test_both_extras_of_the_install_command_exist_and_no_other_dependency_is_hidden(metadata: Message) -> None:
    required = [str(value) for value in metadata.get_all("Requires-Dist", [])]
    plain = {value.partition(">")[0] for value in required if "extra ==" not in value}

    assert {"emulator", "spark"} <= set(metadata.get_all("Provides-Extra", []))
    assert plain == {
        "aiohttp",
        "apache-airflow",
        "azure-identity",
        "azure-mgmt-servicebus",
        "azure-servicebus",
        "certifi",
        "pendulum",
    }
    assert any(value.startswith("python-qpid-proton") and 'extra == "emulator"' in value for value in required)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert str(metadata.get_payload()).startswith("# Paired namespaces for Azure Service Bus")


def test_the_installed_distribution_is_found_once_by_airflow_spark_and_pytest() -> None:
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
