"""The rule for names of namespaces."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["NAMESPACE_NAMES", "is_namespace_name"]

NAMESPACE_NAMES: Final = "1 to 50 letters, digits and hyphens, a letter first"
"""The rule; the service requires at least 6 characters."""

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,49}")


def is_namespace_name(name: str) -> bool:
    """Return whether a namespace may have a name."""
    return _NAME.fullmatch(name) is not None
