"""The installed version of the emulator."""

from __future__ import annotations

from functools import cache
from typing import Final

_DISTRIBUTION: Final = "servicebus-emulator"


@cache
def version() -> str:
    """Return the installed version, or ``unknown`` when the code runs from a folder that is not installed."""
    # Imported here because it is slow and the start does not need it.
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed(_DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"
