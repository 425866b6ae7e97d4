"""Environments for each minor version of Airflow and each Python, and for each one of Spark, in ``.compat``.

Airflow publishes the versions that a release was tested with. Where their address cannot be reached, they are resolved
from what was there two days after the release, which is how they came about.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from packaging.requirements import Requirement

PROJECT: Final = Path(__file__).parents[2]
ROOT: Final = PROJECT / ".compat"
PYTHONS: Final = ("3.11", "3.12", "3.13")
# The newest of each minor version, and two days after its release.
RELEASES: Final[Mapping[str, tuple[str, str]]] = {
    "3.1": ("3.1.8", "2026-03-14"),
    "3.2": ("3.2.2", "2026-05-31"),
    "3.3": ("3.3.2", "2026-09-19"),
}
# The newest of each minor version, with the Python of the tests.
SPARKS: Final[Mapping[str, str]] = {"4.0": "4.0.5", "4.1": "4.1.4", "4.2": "4.2.0", "4.3": "4.3.0"}
_SPARK_PYTHON: Final = "3.11"
_PUBLISHED: Final = "https://raw.githubusercontent.com/apache/airflow/constraints-{airflow}/constraints-{python}.txt"
_PROVIDERS: Final = ("common-messaging", "microsoft-azure", "openlineage", "smtp", "standard")
_TOOLS: Final = ("hypothesis", "pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist", "selenium", "statsd")
_MORE: Final = ("httpx", "httpx2", "packaging", "psutil", "pyarrow", "setuptools", "websocket-client")
# Our versions of them need a newer idna than that of Airflow 3.1 and 3.2.
_UNPINNED: Final = ("httpcore2", "httpx2")
# An object store, and the library by which a ledger is written there.
_STORES: Final = ("moto[server]", "s3fs")
# What DAGs with Spark's jobs need to be parsed.
_SPARK_PROVIDER: Final = "apache-airflow-providers-apache-spark"
_FETCH_SECONDS: Final = 5
_INSTALL_SECONDS: Final = 900


class UnavailableError(Exception):
    """An environment cannot be made here."""


@dataclass(frozen=True, slots=True)
class Environment:
    """One of them.

    :param minor: of Airflow.
    :param python: the minor version of Python.
    """

    minor: str
    python: str

    @property
    def name(self) -> str:
        return f"{self.minor}-py{self.python}"

    @property
    def runs_all_tests(self) -> bool:
        """Whether the quick tests run here: once for each minor version of Airflow, and once on each Python."""
        return [*RELEASES].index(self.minor) == PYTHONS.index(self.python)

    @property
    def airflow(self) -> str:
        return RELEASES[self.minor][0]

    @property
    def release(self) -> str:
        return f"Airflow {self.airflow}"

    @property
    def folder(self) -> Path:
        return ROOT / f"airflow-{self.name}"

    @property
    def executable(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def source(self) -> str:
        """Where the versions come from: ``published``, or the day as of which they were resolved."""
        stamp = self.folder / ".source"
        return stamp.read_text() if stamp.exists() else ""

    def variables(self, airflow_home: Path) -> dict[str, str]:
        """Return the environment variables of a process in it."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "UV_", "PYTEST"))}
        kept.pop("PYTHONDONTWRITEBYTECODE", None)
        return kept | {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "VIRTUAL_ENV": str(self.folder),
            "PYTHONPATH": os.pathsep.join([str(PROJECT / "provider"), str(PROJECT)]),
            "AIRFLOW_HOME": str(airflow_home),
            # Before 3.2 a DAG that changes within half a minute is not stored again.
            "AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL": "0",
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        }

    def make(self) -> None:
        """Make it, unless it is there and nothing that it consists of has changed.

        :raises UnavailableError: it cannot be made.
        """
        stamp = self.folder / ".made"
        wanted = _fingerprint(self)
        if stamp.exists() and stamp.read_text() == wanted:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        _run([_uv(), "venv", "--quiet", "--python", _interpreter(self.python), str(self.folder)])
        constraints = self._constraints()
        install = [_uv(), "pip", "install", "--quiet", "--python", str(self.executable)]
        install += ["--constraints", str(constraints), "--build-constraints", str(PROJECT / "constraints.txt")]
        try:
            projects = ["--editable", "provider/servicebus_emulator", "--editable", ".[messaging,openlineage]"]
            _run([*install, *projects, *self._demands(), *_TOOLS, *_MORE])
            _run([*install, "--no-deps", _SPARK_PROVIDER])
            spark = dict(_pins(PROJECT / "constraints.txt"))["pyspark"]
            _run([_uv(), "pip", "install", "--quiet", "--python", str(self.executable), "--no-deps", spark])
        finally:
            # In build leftovers Airflow would find the provider and the plugin a second time.
            for left in (
                *PROJECT.glob("provider/*.egg-info"),
                *PROJECT.glob("provider/servicebus_emulator/*.egg-info"),
            ):
                shutil.rmtree(left, ignore_errors=True)
            shutil.rmtree(PROJECT / "provider" / "servicebus_emulator" / "build", ignore_errors=True)
        stamp.write_text(wanted)

    def _demands(self) -> list[str]:
        return [f"apache-airflow=={self.airflow}", *(f"apache-airflow-providers-{each}" for each in _PROVIDERS)]

    def _constraints(self) -> Path:
        """Write the versions: Airflow's, without those that are too old for us, and ours for what it lacks."""
        published = self.folder / "airflow.txt"
        try:
            address = _PUBLISHED.format(airflow=self.airflow, python=self.python)
            with urllib.request.urlopen(address, timeout=_FETCH_SECONDS) as response:  # noqa: S310  https
                published.write_bytes(response.read())
            source = "published"
        except OSError:
            as_of = RELEASES[self.minor][1]
            wanted = self.folder / "airflow.in"
            wanted.write_text("\n".join([*self._demands(), _SPARK_PROVIDER]))
            options = ["--python", str(self.executable), "--exclude-newer", as_of, "--no-header", "--no-annotate"]
            _run([_uv(), "pip", "compile", "--quiet", *options, "--output-file", str(published), str(wanted)])
            source = f"as of {as_of}"
        theirs = dict(_pins(published))
        usable = {name: line for name, line in theirs.items() if _fits(name, line)}
        ours = {name: line for name, line in _pins(PROJECT / "constraints.txt") if name not in theirs}
        ours = {name: line for name, line in ours.items() if name not in _UNPINNED}
        merged = self.folder / "constraints.txt"
        merged.write_text("\n".join([*usable.values(), *ours.values()]) + "\n")
        (self.folder / ".source").write_text(source)
        return merged


@dataclass(frozen=True, slots=True)
class SparkEnvironment:
    """An environment without Airflow, which the data source does not need.

    :param minor: of Spark.
    """

    minor: str
    source: str = "ours"

    @property
    def name(self) -> str:
        return f"spark-{self.minor}"

    @property
    def release(self) -> str:
        return f"Spark {SPARKS[self.minor]}"

    @property
    def folder(self) -> Path:
        return ROOT / self.name

    @property
    def executable(self) -> Path:
        return self.folder / "bin" / "python"

    def variables(self, home: Path) -> dict[str, str]:
        """Return the environment variables of a process in it."""
        dropped = ("AIRFLOW", "UV_", "PYTEST", "SPARK_", "PYSPARK_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
        return kept | {
            "PATH": f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "VIRTUAL_ENV": str(self.folder),
            "PYTHONPATH": os.pathsep.join([str(PROJECT / "provider"), str(PROJECT)]),
            "TMPDIR": str(home),
        }

    def make(self) -> None:
        """Make it, unless it is there and nothing that it consists of has changed.

        :raises UnavailableError: it cannot be made.
        """
        stamp, pins = self.folder / ".made", dict(_pins(PROJECT / "constraints.txt"))
        own = {_canonical(each.name) for each in _own_demands()} - {"apache-airflow"}
        wanted = [f"pyspark=={SPARKS[self.minor]}", "pandas", "pyarrow", *sorted(own), *_TOOLS, *_MORE, *_STORES]
        lines = [line for name, line in pins.items() if not name.startswith("pyspark")]
        made = "\n".join([*wanted, *lines])
        if stamp.exists() and stamp.read_text() == made:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        _run([_uv(), "venv", "--quiet", "--python", _interpreter(_SPARK_PYTHON), str(self.folder)])
        constraints = self.folder / "constraints.txt"
        constraints.write_text("\n".join(lines) + "\n")
        install = [_uv(), "pip", "install", "--quiet", "--python", str(self.executable)]
        _run([*install, "--constraints", str(constraints), "--build-constraints", str(constraints), *wanted])
        stamp.write_text(made)


def known_environments(only: str = "", *, here: bool = False) -> list[Environment | SparkEnvironment]:
    """Return the environments, or those whose names contain one of ``only``, which commas separate.

    :param here: only those of Airflow on the Python that runs this.
    """
    this = ".".join(map(str, sys.version_info[:2]))
    every: list[Environment | SparkEnvironment] = [
        *(Environment(minor, python) for minor in RELEASES for python in ([this] if here else PYTHONS)),
        *(SparkEnvironment(minor) for minor in SPARKS if not here),
    ]
    return [each for each in every if any(part in each.name for part in only.split(","))]


def _pins(file: Path) -> Iterator[tuple[str, str]]:
    for line in file.read_text().splitlines():
        name, equals, _ = line.partition("==")
        if equals and not line.startswith("#"):
            yield _canonical(name), line


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name.strip()).lower()


def _fits(name: str, line: str) -> bool:
    version = line.partition("==")[2].partition(";")[0].strip()
    return all(demand.specifier.contains(version) for demand in _own_demands() if _canonical(demand.name) == name)


def _own_demands() -> list[Requirement]:
    folders = (PROJECT, PROJECT / "provider" / "servicebus_emulator")
    return [Requirement(each) for folder in folders for each in _project(folder)["dependencies"]]


def _project(folder: Path) -> Any:
    return tomllib.loads((folder / "pyproject.toml").read_text())["project"]


def _fingerprint(environment: Environment) -> str:
    files = [Path(__file__), PROJECT / "constraints.txt"]
    parts = [each.read_bytes() for each in files]
    folders = (PROJECT, PROJECT / "provider" / "servicebus_emulator")
    parts += [json.dumps(_project(folder), sort_keys=True).encode() for folder in folders]
    return sha256(b"".join([*parts, environment.name.encode()])).hexdigest()


def _interpreter(version: str) -> str:
    """Return a Python of this version; a version manager's shim may exist and still fail."""
    installed = sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python")))
    for candidate in (sys.executable, f"python{version}", *installed):
        ask = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2], sys._base_executable)"]
        try:
            found, path = subprocess.run(ask, check=True, capture_output=True, text=True).stdout.split()
        except (OSError, subprocess.CalledProcessError):
            continue
        if found == version:
            return path
    raise UnavailableError(f"there is no Python {version} here")


def _uv() -> str:
    return str(Path(sys.executable).with_name("uv"))


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            command,
            cwd=PROJECT,
            env=_settings_of_pip(),
            capture_output=True,
            text=True,
            timeout=_INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{command[1]} took more than {_INSTALL_SECONDS} s") from error
    if done.returncode != 0:
        raise UnavailableError(" ".join(done.stderr.split())[-400:])


def _settings_of_pip() -> dict[str, str]:
    """Return the environment variables of uv, which does not read pip's settings, as ``.ci/setup`` sets them."""
    asked = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    found = dict(re.findall(r"^\S+?\.([\w-]+)='(.*)'$", listed, flags=re.MULTILINE))
    names = {
        "cert": "SSL_CERT_FILE",
        "index-url": "UV_DEFAULT_INDEX",
        "extra-index-url": "UV_INDEX",
        "find-links": "UV_FIND_LINKS",
    }
    return {
        **os.environ,
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_NO_CONFIG": "1",
        "UV_SYSTEM_CERTS": "1",
        "UV_HTTP_TIMEOUT": "180",
        "UV_PYTHON_DOWNLOADS": "never",
        **{names[name]: value for name, value in found.items() if name in names},
    }
