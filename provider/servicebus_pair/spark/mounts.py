"""Paths of what driver and executors share: of a file system that all have mounted, never of an object storage.

``abfss://container@account/ledger`` would name a folder ``abfss:`` where each process happens to run, and a relative
path another folder in each: nobody would share them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from servicebus_pair.core.errors import ConfigurationError

__all__ = ["absolute", "for_spark", "shared"]

_URL: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:/")


def absolute(path: str) -> str:
    """Answer ``path`` from the root, for processes that run elsewhere. :raises ValueError: it is a URL."""
    if _URL.match(path) is not None:
        raise ValueError(path)
    return str(Path(path).absolute())


def shared(path: str, *, what: str) -> str:
    """Answer ``path`` from the root. :raises ConfigurationError: it is a URL; naming ``what`` it was to be."""
    try:
        return absolute(path)
    except ValueError:
        raise ConfigurationError(
            f"{what} is {path!r}, which is a URL: it must be a path on a file system that driver and executors have "
            "mounted, as files of an object storage cannot be appended to"
        ) from None


def for_spark(path: str | os.PathLike[str]) -> str:
    """Answer how Spark finds ``path`` on a mounted file system, whatever its default one is; a URL stays."""
    text = os.fspath(path)
    return text if _URL.match(text) is not None else f"file://{absolute(text)}"
