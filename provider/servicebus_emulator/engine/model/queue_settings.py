"""The queue settings that govern messages, converted from an entity's description."""

from __future__ import annotations

from dataclasses import dataclass

from servicebus_emulator.engine.model.descriptions import QueueDescription, SubscriptionDescription
from servicebus_emulator.engine.model.timespan import TimeSpan

_TICKS_PER_MILLISECOND = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """The settings of a queue. Durations are in milliseconds; None means unlimited."""

    lock_duration: int
    time_to_live: int | None
    dead_letter_on_expiry: bool
    max_delivery_count: int
    requires_session: bool

    @classmethod
    def of(cls, description: QueueDescription | SubscriptionDescription) -> QueueSettings:
        """Return the settings of a queue or subscription."""
        lock_duration = milliseconds(description.lock_duration)
        return cls(
            lock_duration=1 if lock_duration is None else max(1, lock_duration),
            time_to_live=milliseconds(description.default_message_time_to_live),
            dead_letter_on_expiry=description.dead_lettering_on_message_expiration,
            max_delivery_count=description.max_delivery_count,
            requires_session=description.requires_session,
        )


def milliseconds(span: TimeSpan) -> int | None:
    """Return a duration in milliseconds, or None when it is unlimited."""
    return None if span.unbounded else span.ticks // _TICKS_PER_MILLISECOND


def min_or_none(*values: int | None) -> int | None:
    """Return the smallest duration or time, ignoring None; None when there is no other value."""
    smallest = None
    for value in values:
        if value is not None and (smallest is None or value < smallest):
            smallest = value
    return smallest
