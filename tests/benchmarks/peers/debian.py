"""RabbitMQ and Erlang from Debian's archive, unpacked into a folder: nothing is installed, no service is started."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

_PACKAGE: Final = "rabbitmq-server"
_TIMEOUT: Final = 300
_COMPLETE: Final = "complete"


class UnpackError(Exception):
    """The packages cannot be had here."""


class Unpacked:
    """An unpacked server.

    :ivar bin: the folder with the programs of Erlang's emulator, ``epmd`` among them.
    """

    def __init__(self, root: Path) -> None:
        self.erlang = root / "usr/lib/erlang"
        self.bin = _only(self.erlang, "erts-*/bin")
        self.server = _only(root, "usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server")

    @property
    def version(self) -> str:
        return self.server.parents[1].name.rpartition("-")[2]


def unpack_rabbitmq(folder: Path) -> Unpacked:
    """Download the server with what it needs, once, and unpack it into ``folder``.

    :raises UnpackError: says why that is not possible.
    """
    if not (folder / _COMPLETE).exists():
        for tool in ("apt-get", "dpkg"):
            if shutil.which(tool) is None:
                raise UnpackError(f"{tool} is missing: this is no Debian")
        shutil.rmtree(folder, ignore_errors=True)
        packages = folder / "packages"
        packages.mkdir(parents=True)
        plan = _run("apt-get", "install", "--simulate", "--no-install-recommends", _PACKAGE, folder=packages)
        names = {line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")}
        _run("apt-get", "download", *sorted(names or {_PACKAGE}), folder=packages)
        for package in packages.glob("*.deb"):
            _run("dpkg", "--extract", str(package), str(folder), folder=packages)
        (folder / _COMPLETE).touch()
    try:
        return Unpacked(folder)
    except StopIteration:
        raise UnpackError(f"{folder} lacks parts of the server that are installed on this system already") from None


def _run(*command: str, folder: Path) -> str:
    try:
        return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=_TIMEOUT).stdout
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", "") or str(error)).strip()
        raise UnpackError(f"{' '.join(command[:2])} failed: {said[-200:]}") from error


def _only(folder: Path, pattern: str) -> Path:
    return next(folder.glob(pattern))
