"""Values and pure rules shared by all packages of the core: options, errors, events, results, health, prices."""

from __future__ import annotations

from servicebus_pair.core.model.checks import boolean, choice, duration, integer, message_rate, non_empty_text
from servicebus_pair.core.model.interfaces import Clock, SystemClock
from servicebus_pair.core.model.options import OPTION_CHECKS
from servicebus_pair.core.model.results import Drift
from servicebus_pair.core.model.usage_meter import Meter, Operation

__all__ = [
    "OPTION_CHECKS",
    "Clock",
    "Drift",
    "Meter",
    "Operation",
    "SystemClock",
    "boolean",
    "choice",
    "duration",
    "integer",
    "message_rate",
    "non_empty_text",
]
