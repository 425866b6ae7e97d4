"""Events that a pair emits to its observers."""

from __future__ import annotations

from servicebus_pair.core.model.events import (
    SLOT_SECONDS,
    BacklogCopyTooLarge,
    DeadLettered,
    Event,
    HealthChanged,
    MessageRef,
    MessagesAccepted,
    MessagesSyphoned,
    Observer,
    Pinged,
    QueuePulled,
    Route,
)

__all__ = [
    "SLOT_SECONDS",
    "BacklogCopyTooLarge",
    "DeadLettered",
    "Event",
    "HealthChanged",
    "MessageRef",
    "MessagesAccepted",
    "MessagesSyphoned",
    "Observer",
    "Pinged",
    "QueuePulled",
    "Route",
]
