"""Checks for private names of azure-servicebus, which a newer version may lack.

Where a public alternative exists it is used, and a warning says once what that costs. Where none exists, the import
fails. Both messages name the installed version and the missing name.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

from azure.servicebus import __version__

__all__ = ["first_missing_attribute", "incompatible_sdk_error"]

_log = logging.getLogger(__name__)
_TESTED_VERSION: Final = "7.15"
_warned: Final[set[tuple[str, str]]] = set()


def first_missing_attribute(thing: Any, names: Iterable[str], *, consequence: str) -> str | None:
    """Return the first of ``names`` that ``thing`` lacks, or ``None``; each is logged once.

    :param consequence: what happens without it, for the warning.
    """
    for name in names:
        if not hasattr(thing, name):
            qualified = f"{type(thing).__name__}.{name}"
            if (qualified, consequence) not in _warned:
                _warned.add((qualified, consequence))
                _log.warning(
                    "azure-servicebus %s has no %s, which %s had: %s",
                    __version__,
                    qualified,
                    _TESTED_VERSION,
                    consequence,
                )
            return name
    return None


def incompatible_sdk_error(reason: object) -> ImportError:
    """Return the error for a missing name without which nothing can be sent."""
    return ImportError(
        f"azure-servicebus {__version__} cannot be used: {reason}, which {_TESTED_VERSION} had; "
        f"install azure-servicebus {_TESTED_VERSION}"
    )
