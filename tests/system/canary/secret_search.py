"""Finds secrets in the files of a folder, in plain text or common encodings."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

DUMP_COMMAND: Final = (
    sys.executable,
    "-c",
    "import sqlite3, sys\nfor statement in sqlite3.connect(sys.argv[1]).iterdump():\n    print(statement)",
)
"""Prints a SQLite database; in its own process, because closing the file would drop this process's SQLite locks."""


def find_secrets(folder: Path, secrets: Mapping[str, str]) -> list[str]:
    """Return which secret is in which file, and in which encoding.

    :param secrets: by name.
    """
    patterns = [(name, encoding, text) for name, secret in secrets.items() for encoding, text in encodings(secret)]
    return [
        f"{name} in {encoding}: {file.relative_to(folder)}"
        for file in sorted(folder.rglob("*"))
        if file.is_file()
        for content in [file.read_bytes()]
        for name, encoding, text in patterns
        if text in content
    ]


def without_lines(content: bytes, text: bytes) -> bytes:
    return b"\n".join(line for line in content.split(b"\n") if text not in line)


def encodings(secret: str) -> Iterator[tuple[str, bytes]]:
    """Yield the encodings of a secret; base64 at each of the three offsets in a longer text."""
    plain = secret.encode()
    yield "clear", plain
    if quote(secret, safe="") != secret:
        yield "a URL", quote(secret, safe="").encode()
    yield "hexadecimal", plain.hex().encode()
    for before in range(3):
        coded = base64.b64encode(b"\0" * before + plain)
        # Without the characters that depend on the surrounding text.
        core = coded[(before * 8 + 5) // 6 : (before + len(plain)) * 8 // 6]
        yield "base64", core
        if core.translate(URL_SAFE) != core:
            yield "base64 for URLs", core.translate(URL_SAFE)


URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")
