"""Files of the driver that other programs wait for: whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from servicebus_pair.core.errors import ConfigurationError

__all__ = ["check_writable", "write_json"]


def check_writable(path: str | os.PathLike[str], *, what: str) -> None:
    """Refuse a file that cannot be written, while nothing was done that it is to tell of.

    :param what: what the path is called in the error.
    :raises ConfigurationError: it is a folder, or lies where no file can be made.
    """
    target = Path(path)
    if target.is_dir():
        raise ConfigurationError(f"{what} is {str(path)!r}, which is a folder: allowed is the path of a file")
    folder = next(each for each in target.absolute().parents if each.exists())
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigurationError(f"{what} is {str(path)!r}: no file can be made in {folder}")


def write_json(path: str | os.PathLike[str], value: Mapping[str, Any]) -> None:
    """Write ``value`` as JSON; who finds the file finds all of it. :raises OSError: it cannot be written."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    fresh.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    fresh.replace(target)
