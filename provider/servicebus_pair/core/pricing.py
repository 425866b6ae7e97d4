"""Cost functions: what a pair's operations cost at a dated price list (SPEC section 8)."""

from __future__ import annotations

from servicebus_pair.core.model.pricing import *  # noqa: F403 - the same names
from servicebus_pair.core.model.pricing import __all__  # noqa: F401
