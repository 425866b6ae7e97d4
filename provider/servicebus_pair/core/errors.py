"""Errors raised by a pair. Each says whether it is retriable and whether it triggers a failover."""

from __future__ import annotations

from servicebus_pair.core.model.errors import *  # noqa: F403 - the same names
from servicebus_pair.core.model.errors import __all__  # noqa: F401
