"""Downloads the SDK's source distribution with pip and caches it."""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Final

CACHE: Final = Path(__file__).parents[2] / ".conformance"
_DISTRIBUTION: Final = "azure-servicebus"


def installed_version() -> str:
    """Return the installed version of the SDK, pinned by constraints.txt."""
    return importlib.metadata.version(_DISTRIBUTION)


def fetch_source() -> Path:
    """Return the folder of the unpacked source distribution of the installed version.

    :raises RuntimeError: pip could not download it; pip prints the reason to stderr.
    """
    version = installed_version()
    folder = CACHE / f"azure_servicebus-{version}"
    if (folder / "tests").is_dir():
        return folder
    CACHE.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    command += ["--no-binary", ":all:", "--dest", str(CACHE), f"{_DISTRIBUTION}=={version}"]
    if subprocess.run(command, check=False).returncode != 0:
        raise RuntimeError(f"pip could not download the source of {_DISTRIBUTION} {version}; see its output above")
    unpacked = CACHE / "unpacked"
    with tarfile.open(CACHE / f"{folder.name}.tar.gz") as archive:
        archive.extractall(unpacked, filter="data")
    shutil.move(unpacked / folder.name, folder)
    unpacked.rmdir()
    return folder
