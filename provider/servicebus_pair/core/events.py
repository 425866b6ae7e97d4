"""Every decision of a pair as one frozen event, and the protocol of those who listen.

Observers (ledger, meter, statistics, logs) learn everything from here and decide nothing.
Times are seconds since the Unix epoch (UTC).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

from servicebus_pair.core.health import EntityHealth

__all__ = [
    "SLOT_SECONDS",
    "BacklogTooSmall",
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

SLOT_SECONDS: Final = 300
"""How long each slot is in which messages are counted over time: slot 0 began at the Unix epoch."""


class Route(StrEnum):
    """Where a send went."""

    PRIMARY = "primary"
    BACKLOG = "backlog"


@dataclass(frozen=True, slots=True)
class MessageRef:
    """A message as bookkeeping sees it: its id and its encoded size, never its body."""

    message_id: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class MessagesAccepted:
    """The primary entity or a backlog queue confirmed one batch."""

    entity: str
    route: Route
    queue: str | None
    messages: tuple[MessageRef, ...]
    at: float


@dataclass(frozen=True, slots=True)
class MessagesSyphoned:
    """The primary confirmed messages that came out of a backlog queue."""

    entity: str
    queue: str
    messages: tuple[MessageRef, ...]
    at: float


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """The syphon dead-lettered one message that can never be delivered."""

    queue: str
    message_id: str
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """The health of an entity took another state."""

    entity: str
    before: EntityHealth
    after: EntityHealth
    at: float


@dataclass(frozen=True, slots=True)
class Pinged:
    """One ping ended; ``error`` names the class of the failure, if it failed."""

    entity: str
    succeeded: bool
    seconds: float
    error: str | None
    at: float


@dataclass(frozen=True, slots=True)
class QueuePulled:
    """A backlog queue left the rotation of all senders of the pair."""

    queue: str
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class BacklogTooSmall:
    """A message that its entity takes would not fit the backlog: in an outage, its send would fail.

    :param size_bytes: what the message takes.
    :param growth_bytes: what its copy for the backlog takes beyond that.
    :param limit_bytes: what a backlog queue takes.
    """

    entity: str
    message_id: str
    size_bytes: int
    growth_bytes: int
    limit_bytes: int
    at: float


Event: TypeAlias = (
    MessagesAccepted | MessagesSyphoned | DeadLettered | HealthChanged | Pinged | QueuePulled | BacklogTooSmall
)


class Observer(Protocol):
    """Something that wants to know. It is called in the order of events and must not block for long."""

    def observe(self, event: Event) -> None:
        """Take note of one event. Called before the operation that caused it returns."""
