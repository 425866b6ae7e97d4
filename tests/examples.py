"""How many random examples a property is tried with: all of them with ``THOROUGH=1``, as ``make test-all`` sets.

Each run draws new examples, so that a quarter of them on every run finds as much over time.
"""

from __future__ import annotations

import os
from typing import Final

from hypothesis import settings

__all__ = ["examples", "how_many"]

_QUICK: Final = 4
_FEWEST: Final = 20


def how_many(thorough: int) -> int:
    """Return how many examples this run tries, of those that a thorough one does."""
    return thorough if os.environ.get("THOROUGH") else min(thorough, max(_FEWEST, thorough // _QUICK))


def examples(thorough: int) -> settings:
    """Return the decorator of a property that needs more or fewer examples than others."""
    return settings(max_examples=how_many(thorough))
