"""Arguments of the Spark jobs, and the JSON files that they write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def arguments(options: Mapping[str, str | None]) -> list[str]:
    """Return command-line arguments; an option without a value is a flag."""
    return [word for option in options.items() for word in option if word is not None]


def read_json(file: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(file.read_text())
    return value


def read_summary(folder: Path) -> dict[str, Any]:
    return read_json(folder / "summary.json")
