"""What others may put into a folder that is read."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servicebus_pair.core.ledger import PublishManifest

Plant = Callable[[Path], object]


def holding(content: bytes | str) -> Plant:
    data = content.encode() if isinstance(content, str) else content
    return lambda path: path.write_bytes(data)


def endless(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def sparse(path: Path, size: int, end: bytes) -> None:
    with path.open("wb") as file:
        file.seek(size - len(end))
        file.write(end)


def listening(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        before = Path.cwd()
        os.chdir(path.parent)  # the address of a socket is short
        server.bind(path.name)
        os.chdir(before)


NO_FILES: dict[str, Plant] = {
    "pipe": os.mkfifo,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "link": lambda path: path.symlink_to("/etc/passwd"),
    "socket": listening,
    "folder": Path.mkdir,
}
NESTED = holding("[" * 60_000)
MANIFEST = PublishManifest("r", {}, 0, 0.0)


def close_folder(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def refuse(path: Any) -> Any:
        if Path(path).name == name:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
