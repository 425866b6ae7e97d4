"""The part of an entity's description that moves messages, in the units of the broker."""

from __future__ import annotations

from dataclasses import dataclass

from servicebus_emulator.engine.descriptions import QueueDescription, SubscriptionDescription
from servicebus_emulator.engine.timespan import TimeSpan

__all__ = ["QueueSettings", "milliseconds", "shortest"]

_TICKS_PER_MILLISECOND = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """What a queue needs to know of its description. Durations in milliseconds; None = for ever."""

    lock_duration: int
    time_to_live: int | None
    dead_letter_on_expiry: bool
    max_delivery_count: int
    requires_session: bool

    @classmethod
    def of(cls, description: QueueDescription | SubscriptionDescription) -> QueueSettings:
        """Read the settings of a queue or subscription."""
        lock_duration = milliseconds(description.lock_duration)
        return cls(
            lock_duration=1 if lock_duration is None else max(1, lock_duration),
            time_to_live=milliseconds(description.default_message_time_to_live),
            dead_letter_on_expiry=description.dead_lettering_on_message_expiration,
            max_delivery_count=description.max_delivery_count,
            requires_session=description.requires_session,
        )


def milliseconds(span: TimeSpan) -> int | None:
    """Return a duration in milliseconds, or None when it means "for ever"."""
    return None if span.unbounded else span.ticks // _TICKS_PER_MILLISECOND


def shortest(*durations: int | None) -> int | None:
    """Return the shortest duration, where None is for ever."""
    least = None
    for each in durations:
        if each is not None and (least is None or each < least):
            least = each
    return least
