"""Files of the driver that other programs wait for: whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["write_json"]


def write_json(path: str | os.PathLike[str], value: Mapping[str, Any]) -> None:
    """Write ``value`` as JSON; who finds the file finds all of it. :raises OSError: it cannot be written."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_name(f".{target.name}.{os.getpid()}")
    fresh.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    fresh.replace(target)
