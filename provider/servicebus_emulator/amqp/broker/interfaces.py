"""Connections and links, as the broker uses them."""

from __future__ import annotations

from typing import Protocol

from servicebus_emulator.amqp.broker.fault_injector import FaultTarget
from servicebus_emulator.engine.model.errors import BrokerError
from servicebus_emulator.engine.model.session_locks import SessionLock
from servicebus_emulator.engine.namespace.entity_registry import AnyEntity
from servicebus_emulator.engine.queue.queue import MessageQueue


class BrokerConnection(FaultTarget, Protocol):
    """A client's connection."""

    closed: bool

    def write_frames(self) -> None:
        """Encode the frames of the replies issued so far."""

    def flush(self) -> None:
        """Send the bytes that are ready."""

    def close(self) -> None:
        """Close with an AMQP close frame."""

    def abort(self) -> None:
        """Drop the connection and its unsent bytes."""


class EntityLink(Protocol):
    """A link to an entity."""

    @property
    def entity(self) -> AnyEntity:
        """The entity."""

    def closing_error(self) -> BrokerError | None:
        """Return why the link must close, if its entity was deleted or its status changed."""

    def close_with_error(self, error: BrokerError) -> None:
        """Detach the link with an error."""


class OutgoingLink(EntityLink, Protocol):
    """A link on which the messages of one queue are sent to a client."""

    queue: MessageQueue
    session_lock: SessionLock | None

    @property
    def demand(self) -> int:
        """The number of messages that can be sent now."""

    def deliver(self, limit: int) -> int:
        """Take up to `limit` messages from the queue and send them; return their number."""

    def complete_drain(self) -> None:
        """Give back unused credit if the client requested a drain and no message is left for it."""


class SessionWaiter(Protocol):
    """An attach that waits for any session of a queue."""

    queue: MessageQueue

    def try_session(self) -> bool:
        """Try to lock a session; return whether the waiter is done and was removed."""
