"""How many random examples a property is tried with: all of them with ``THOROUGH=1``, as ``make test-all`` sets.

Each run draws new examples, so that a quarter of them on every run finds as much over time.
"""

from __future__ import annotations

import os
from typing import Final

from hypothesis import settings

_QUICK: Final = 4
_FEWEST: Final = 20


def how_many(thorough: int, *, quick: int | None = None) -> int:
    """Return how many examples this run tries, of those that a thorough one does.

    :param quick: how many a quick run tries, of a property whose examples take long.
    """
    if os.environ.get("THOROUGH"):
        return thorough
    return min(thorough, max(_FEWEST, thorough // _QUICK)) if quick is None else quick


def examples(thorough: int, *, quick: int | None = None) -> settings:
    """Return the decorator of a property that needs more or fewer examples than others."""
    return settings(max_examples=how_many(thorough, quick=quick))
