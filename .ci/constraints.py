"""Writes constraints.txt: every version that a set-up installs, resolved by pip on each supported Python.

Run by `make constraints`. A version that differs between Pythons gets one line for each, with a marker.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

SUPPORTED = ("3.11", "3.12", "3.13")
# What installs, and what the source distributions among the dependencies are built with.
BUILD_TOOLS = ("pip", "uv", "setuptools", "wheel", "cffi")
PROJECTS = ("--editable", "./provider/servicebus_emulator", "--editable", ".[dev]")
OURS = ("airflow-provider-servicebus-pair", "servicebus-emulator")
HEADER = """\
# Every version that a set-up installs, and that the builds of source distributions use. Resolved on Python {pythons}.
# Written by `make constraints`; don't edit.
"""


def find_pythons() -> dict[str, str]:
    """Return an interpreter for each supported version that this machine has, the project's own among them."""
    found = {".".join(map(str, sys.version_info[:2])): sys.executable}
    candidates = [f"python{version}" for version in SUPPORTED]
    candidates += sorted(map(str, Path.home().glob(".pyenv/versions/3.*/bin/python3")))
    for candidate in candidates:
        ask = [candidate, "-c", "import ensurepip, sys; print('%d.%d' % sys.version_info[:2])"]
        try:
            version = subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            continue
        if version in SUPPORTED:
            found.setdefault(version, candidate)
    return found


def resolve(python: str, pip_version: str | None) -> dict[str, str]:
    """Return name -> version of all that pip would install for the project with this interpreter."""
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([python, "-m", "venv", scratch], check=True)
        pip = [f"{scratch}/bin/python", "-m", "pip", "--disable-pip-version-check", "-qq", "install"]
        subprocess.run([*pip, "--upgrade", "pip" if pip_version is None else f"pip=={pip_version}"], check=True)
        report = Path(scratch) / "report.json"
        subprocess.run(
            [*pip, "--dry-run", "--ignore-installed", "--report", str(report), *PROJECTS, *BUILD_TOOLS],
            check=True,
        )
        items = json.loads(report.read_text())["install"]
    versions = {canonical(item["metadata"]["name"]): item["metadata"]["version"] for item in items}
    return {name: version for name, version in versions.items() if name not in OURS}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def merge(resolved: dict[str, dict[str, str]]) -> list[str]:
    """Return the lines for all Pythons, with a marker where a line does not hold for every one."""
    by_line: dict[tuple[str, str], list[str]] = defaultdict(list)
    for python, versions in resolved.items():
        for name, version in versions.items():
            by_line[name, version].append(python)
    lines = []
    for (name, version), pythons in sorted(by_line.items()):
        others = len(pythons) < len(resolved)
        marker = " or ".join(f'python_version == "{python}"' for python in pythons)
        lines.append(f"{name}=={version}" + (f" ; {marker}" if others else ""))
    return lines


def main() -> None:
    os.chdir(Path(__file__).parent.parent)
    resolved: dict[str, dict[str, str]] = {}
    pip_version: str | None = None
    for version, python in sorted(find_pythons().items()):
        print(f"resolving on Python {version} ({python}) ...", flush=True)
        resolved[version] = resolve(python, pip_version)
        pip_version = resolved[version]["pip"]
    lines = merge(resolved)
    Path("constraints.txt").write_text(HEADER.format(pythons=", ".join(resolved)) + "\n".join(lines) + "\n")
    print(f"constraints.txt: {len(lines)} lines; not resolved: {sorted(set(SUPPORTED) - set(resolved)) or 'none'}")


if __name__ == "__main__":
    main()
