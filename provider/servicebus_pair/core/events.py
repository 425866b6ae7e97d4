"""Events that a pair emits to its observers."""

from __future__ import annotations

from servicebus_pair.core.model.events import *  # noqa: F403 - the same names
from servicebus_pair.core.model.events import __all__  # noqa: F401
