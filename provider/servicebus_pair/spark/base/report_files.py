"""JSON files by which the driver and other programs exchange results; each is replaced atomically."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.model import load_json
from servicebus_pair.core.spool import replace_file

MAX_JSON_BYTES: Final = 16 << 20
"""Largest file that a job reads as JSON."""


def check_writable(path: str | os.PathLike[str], *, what: str) -> None:
    """Check that a file can be written later, before the work that it will report.

    :param what: what the error calls the path.
    :raises ConfigurationError: the path is a folder, or no file can be created there.
    """
    target = Path(path)
    if target.is_dir():
        raise ConfigurationError(f"{what} is {str(path)!r}, which is a folder: allowed is the path of a file")
    folder = next(each for each in target.absolute().parents if each.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigurationError(f"{what} is {str(path)!r}: no file can be created in {folder}")


def write_json(path: str | os.PathLike[str], value: Mapping[str, Any]) -> None:
    """Write ``value`` as JSON; readers never see a partial file. :raises OSError: the file cannot be written."""
    replace_file(path, json.dumps(value, indent=2) + "\n")


def read_json(path: str, *, what: str) -> Any:
    """Read a JSON file. :raises ConfigurationError: it cannot be read; the error calls the file ``what``."""
    try:
        return load_json(path, limit=MAX_JSON_BYTES, follow=True)
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{what} {path!r} cannot be read as JSON: {error}") from None
