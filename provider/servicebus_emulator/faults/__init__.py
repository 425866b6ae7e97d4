"""Faults: what can be set to go wrong, and when it does."""

from __future__ import annotations

from servicebus_emulator.faults.model import Fault, FaultError, FaultKind, Operation
from servicebus_emulator.faults.strikes import Armed, Pace, holding, pace_of, refusal_of, strike

__all__ = [
    "Armed",
    "Fault",
    "FaultError",
    "FaultKind",
    "Operation",
    "Pace",
    "holding",
    "pace_of",
    "refusal_of",
    "strike",
]
