"""Where in a folder secrets are, in clear or in an encoding that anybody can undo."""

from __future__ import annotations

import base64
import sys
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["DUMP", "found", "without_lines"]

DUMP: Final = (
    sys.executable,
    "-c",
    "import sqlite3, sys\nfor statement in sqlite3.connect(sys.argv[1]).iterdump():\n    print(statement)",
)
"""The command that prints a database, in a process of its own: one that reads the file drops SQLite's locks on it."""


def found(folder: Path, secrets: Mapping[str, str]) -> list[str]:
    """Return which secret is in which file, and in which spelling.

    :param secrets: by name.
    """
    sought = [(name, how, text) for name, secret in secrets.items() for how, text in spellings(secret)]
    return [
        f"{name} in {how}: {file.relative_to(folder)}"
        for file in sorted(folder.rglob("*"))
        if file.is_file()
        for content in [file.read_bytes()]
        for name, how, text in sought
        if text in content
    ]


def without_lines(content: bytes, text: bytes) -> bytes:
    """Return a text without the lines that hold another text."""
    return b"\n".join(line for line in content.split(b"\n") if text not in line)


def spellings(secret: str) -> Iterator[tuple[str, bytes]]:
    """Yield every way to write a secret that is searched for; base64 at each of its three places in a longer text."""
    plain = secret.encode()
    yield "clear", plain
    if quote(secret, safe="") != secret:
        yield "a URL", quote(secret, safe="").encode()
    yield "hexadecimal", plain.hex().encode()
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + plain)
        # But the characters that depend on what is around.
        core = coded[(before * 8 + 5) // 6 : (before + len(plain)) * 8 // 6]
        yield "base64", core
        if core.translate(URL_SAFE) != core:
            yield "base64 for URLs", core.translate(URL_SAFE)


URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
