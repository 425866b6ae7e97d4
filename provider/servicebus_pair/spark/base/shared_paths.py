"""Paths that driver and executors share: on a mounted file system, or the URL of a store.

A relative path would name a different folder in each process.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.model import storage_location

_URL: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:/")


def absolute_path(path: str) -> str:
    """Return the absolute path, for processes with another working directory. :raises ValueError: it is a URL."""
    if _URL.match(path) is not None:
        raise ValueError(path)
    return str(Path(path).absolute())


def shared_path(path: str, *, what: str) -> str:
    """Return the absolute path. :raises ConfigurationError: it is a URL; the error calls the path ``what``."""
    try:
        return absolute_path(path)
    except ValueError:
        raise ConfigurationError(
            f"{what} is {path!r}, which is a URL: it must be a path on a file system that driver and executors have "
            "mounted"
        ) from None


def shared_location(location: str, *, what: str) -> str:
    """Return the absolute path, or the URL as it is. :raises ConfigurationError: the URL has credentials."""
    return storage_location(what, location) if _URL.match(location) is not None else absolute_path(location)


def spark_path(path: str | os.PathLike[str]) -> str:
    """Return ``path`` as a ``file://`` URL, so that Spark ignores its default file system; a URL is unchanged."""
    text = os.fspath(path)
    return text if _URL.match(text) is not None else f"file://{absolute_path(text)}"
