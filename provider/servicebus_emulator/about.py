"""What the emulator says of itself."""

from __future__ import annotations

from functools import cache
from typing import Final

__all__ = ["version"]

_DISTRIBUTION: Final = "airflow-provider-servicebus-pair"


@cache
def version() -> str:
    """Return the version that is installed; ``unknown`` when it runs from a folder that nobody installed."""
    # Not needed to get ready, and not cheap to import.
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed(_DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"
