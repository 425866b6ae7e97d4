"""Events for every decision of a pair, and the observer protocol.

Observers (ledger, metrics, logs) record events and decide nothing. Times are seconds since the Unix epoch (UTC).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, TypeAlias

from servicebus_pair.core.model.health_state import EntityHealth

__all__ = [
    "SLOT_SECONDS",
    "BacklogCopyTooLarge",
    "DeadLettered",
    "Event",
    "HealthChanged",
    "MessageRef",
    "MessagesAccepted",
    "MessagesSyphoned",
    "MessagesUnspooled",
    "Observer",
    "Pinged",
    "QueuePulled",
    "Route",
    "SpoolFilling",
    "SyphonFailed",
]

SLOT_SECONDS: Final = 300
"""Length of a time slot in which messages are counted; slot 0 began at the Unix epoch."""


class Route(StrEnum):
    """Destination of a send."""

    PRIMARY = "primary"
    BACKLOG = "backlog"
    SPOOLED = "spooled"


@dataclass(frozen=True, slots=True)
class MessageRef:
    """Id and encoded size of a message, without its body.

    :param digest: of the body; ``None`` where it is unknown.
    """

    message_id: str
    size_bytes: int
    digest: str | None = None


@dataclass(frozen=True, slots=True)
class MessagesAccepted:
    """The primary entity, a backlog queue or the spool took a batch. ``spool`` is the name of the spool."""

    entity: str
    route: Route
    queue: str | None
    messages: tuple[MessageRef, ...]
    at: float
    spool: str | None = None


@dataclass(frozen=True, slots=True)
class MessagesSyphoned:
    """The primary accepted messages from a backlog queue."""

    entity: str
    queue: str
    messages: tuple[MessageRef, ...]
    at: float


@dataclass(frozen=True, slots=True)
class MessagesUnspooled:
    """The primary entity or a backlog queue accepted messages from the spool of that name."""

    entity: str
    route: Route
    queue: str | None
    messages: tuple[MessageRef, ...]
    at: float
    spool: str | None = None


@dataclass(frozen=True, slots=True)
class SpoolFilling:
    """The spool holds at least 80 % of what it takes; emitted again only after it held less."""

    used_bytes: int
    limit_bytes: int
    at: float


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """The syphon dead-lettered a message that can never be delivered."""

    queue: str
    message_id: str
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class HealthChanged:
    """The health state of an entity changed."""

    entity: str
    before: EntityHealth
    after: EntityHealth
    at: float


@dataclass(frozen=True, slots=True)
class Pinged:
    """A ping completed; ``error`` is the class name of its failure, if any."""

    entity: str
    succeeded: bool
    seconds: float
    error: str | None
    at: float


@dataclass(frozen=True, slots=True)
class QueuePulled:
    """A failing backlog queue was removed from the selection of all senders of the pair."""

    queue: str
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class BacklogCopyTooLarge:
    """A message fits its entity, but its backlog copy would not fit a backlog queue: in an outage its send would fail.

    :param size_bytes: size of the message.
    :param growth_bytes: additional size of its backlog copy.
    :param limit_bytes: largest message that a backlog queue accepts.
    """

    entity: str
    message_id: str
    size_bytes: int
    growth_bytes: int
    limit_bytes: int
    at: float


@dataclass(frozen=True, slots=True)
class SyphonFailed:
    """The syphon that runs while the pair is open ended with an unexpected error; another one is started.

    :param error: class name of the error, which the log describes.
    :param failures: how many of them have failed in a row.
    :param restart_in: seconds until the next one starts.
    """

    error: str
    failures: int
    restart_in: float
    at: float


Event: TypeAlias = (
    MessagesAccepted
    | MessagesSyphoned
    | MessagesUnspooled
    | DeadLettered
    | HealthChanged
    | Pinged
    | QueuePulled
    | BacklogCopyTooLarge
    | SyphonFailed
    | SpoolFilling
)


class Observer(Protocol):
    """Receives events in order. It must not block for long."""

    def observe(self, event: Event) -> None:
        """Handle an event; called before the operation that caused it returns."""
