"""What happens when azure-servicebus no longer has a name that it never promised to keep.

Where a public way exists it is taken, and the log says once what that costs; where none does, the
import ends with an error. Both name the version at hand and what it lacks.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

from azure.servicebus import __version__

__all__ = ["absent", "unusable"]

_log = logging.getLogger(__name__)
_MADE_WITH: Final = "7.15"
_said: Final[set[tuple[str, str]]] = set()


def absent(thing: Any, names: Iterable[str], *, costs: str) -> str | None:
    """Answer the first of ``names`` that ``thing`` lacks, or ``None``; the log is told once of each.

    :param costs: what is done instead, and what that means.
    """
    for name in names:
        if not hasattr(thing, name):
            where = f"{type(thing).__name__}.{name}"
            if (where, costs) not in _said:
                _said.add((where, costs))
                _log.warning("azure-servicebus %s has no %s, which %s had: %s", __version__, where, _MADE_WITH, costs)
            return name
    return None


def unusable(what: object) -> ImportError:
    """Answer the error for a name without which nothing can be sent."""
    return ImportError(
        f"azure-servicebus {__version__} cannot be used: {what}, which {_MADE_WITH} had; "
        f"install azure-servicebus {_MADE_WITH}"
    )
