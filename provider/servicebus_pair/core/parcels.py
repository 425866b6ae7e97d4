"""What the syphon does with one received message before it is sent: translate, time to live, schedule. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.amqp_types import texts
from servicebus_pair.core.envelope import unwrap
from servicebus_pair.core.errors import UndeliverableError
from servicebus_pair.core.sdk_inside import unreadable_because

__all__ = ["Parcel", "Selection", "TimeToLive", "open_parcel"]

_SCHEDULED: Final = "x-opt-scheduled-enqueue-time"
# Of the lock's time, how much is used before the message is released: settling takes the rest.
_USED_OF_LOCK: Final = 0.6
# Taken where the service's clock and ours disagree by more than the lock.
_LOCK_SECONDS: Final = 30.0
_MILLISECOND: Final = timedelta(milliseconds=1)


class TimeToLive(StrEnum):
    """What happens to a time to live in the backlog (SPEC section 6)."""

    RESTART = "restart"
    ELAPSE = "elapse"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which destinations a syphon serves.

    :param entities: folded paths; ``None`` for all.
    """

    entities: frozenset[str] | None = None

    @classmethod
    def of(cls, entities: Iterable[str] | None) -> Selection:
        """Answer the selection of ``entities``, compared without regard to case."""
        return cls() if entities is None else cls(frozenset(each.casefold() for each in entities))

    def wants(self, entity: str) -> bool:
        """Answer whether ``entity`` is served."""
        return self.entities is None or entity.casefold() in self.entities


@dataclass(frozen=True, slots=True)
class Parcel:
    """One received message with its translation.

    :param good_until: until when (pair's clock, seconds) it may be sent and still be settled well inside its lock.
    """

    entity: str
    received: ServiceBusReceivedMessage
    message: AmqpAnnotatedMessage
    good_until: float = field(default=0.0)

    @property
    def number(self) -> int:
        """The sequence number in the backlog queue."""
        return self.received.sequence_number or 0


def open_parcel(received: ServiceBusReceivedMessage, *, policy: TimeToLive, now: float) -> Parcel:
    """Translate what was received from a backlog queue.

    :param now: seconds since the Unix epoch.
    :raises UndeliverableError: nothing can ever deliver it, or its time to live is over (reason ``Expired``).
    """
    because = unreadable_because(received)
    if because is not None:
        raise UndeliverableError("Unreadable", f"the SDK cannot decode the message: {because}")
    unwrapped = unwrap(received.raw_amqp_message)
    scheduled = _take_past_schedule(unwrapped.message, now)
    if policy is TimeToLive.ELAPSE:
        _elapse(unwrapped.message, received, scheduled, now)
    return Parcel(unwrapped.entity, received, unwrapped.message, now + _USED_OF_LOCK * _lock_seconds(received, now))


def _take_past_schedule(message: AmqpAnnotatedMessage, now: float) -> float | None:
    """Answer the scheduled time in seconds; one that is over is taken off, so that it is sent at once."""
    annotations = message.annotations
    value: Any = texts(annotations).get(_SCHEDULED)
    if annotations is None or value is None:
        return None
    seconds = float(value["VALUE"] if isinstance(value, dict) else value) / 1000
    if seconds <= now:
        message.annotations = {name: each for name, each in texts(annotations).items() if name != _SCHEDULED} or None
    return seconds


def _elapse(
    message: AmqpAnnotatedMessage, received: ServiceBusReceivedMessage, scheduled: float | None, now: float
) -> None:
    header, since = message.header, received.enqueued_time_utc
    if header is None or header.time_to_live is None or since is None:
        return
    # The service counts the time to live of a scheduled message from its scheduled time.
    began = since.timestamp() if scheduled is None else max(since.timestamp(), scheduled)
    left = header.time_to_live - max(0, int((now - began) * 1000))
    if left <= 0:
        life = header.time_to_live * _MILLISECOND
        raise UndeliverableError("Expired", f"its time to live of {life} ended while it waited in the backlog")
    header.time_to_live = left


def _lock_seconds(received: ServiceBusReceivedMessage, now: float) -> float:
    until = received.locked_until_utc
    left = 0.0 if until is None else until.timestamp() - now
    return left if left > 0 else _LOCK_SECONDS
