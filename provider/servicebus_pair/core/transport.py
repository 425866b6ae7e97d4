"""The small port under the move loop: receive, send, settle a batch.

The loop (``mover``) needs no more of Service Bus than this, so a faster transport can be put under
it. :class:`PairTransport` is the one over azure-servicebus.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from azure.servicebus import ServiceBusReceivedMessage

from servicebus_pair.core.clients import NamespaceClient
from servicebus_pair.core.errors import ServiceError
from servicebus_pair.core.wire import WireBatch

__all__ = ["Destination", "PairTransport", "Source", "Transport"]


class Source(Protocol):
    """A backlog queue, or its dead-letter queue, received from under locks."""

    async def receive(self, *, most: int, wait: float, timeout: float) -> list[ServiceBusReceivedMessage]:
        """Receive up to ``most``, waiting up to ``wait`` seconds for the first; locks nothing beyond these.

        Ends within half a second once the source is over, and takes nothing then.
        """

    async def peek(self, *, most: int, timeout: float, first: int = 1) -> list[ServiceBusReceivedMessage]:
        """Look at up to ``most``, from sequence number ``first`` on, without locking."""

    async def complete(
        self, messages: Sequence[ServiceBusReceivedMessage], *, timeout: float
    ) -> list[ServiceError | None]:
        """Take messages out of the queue for good; answer for each its failure or ``None``."""

    async def abandon(
        self, messages: Sequence[ServiceBusReceivedMessage], *, timeout: float
    ) -> list[ServiceError | None]:
        """Release messages to their old places; answer for each its failure or ``None``."""

    async def dead_letter(
        self, message: ServiceBusReceivedMessage, *, reason: str, description: str, timeout: float
    ) -> ServiceError | None:
        """Move one message to the dead-letter queue; answer the failure or ``None``."""

    async def quiet(self, *, timeout: float) -> None:
        """Have nothing more delivered until the next receive; what is on its way is given back, uncounted."""

    def leave(self) -> None:
        """Detach, without waiting for it; what was not settled is released. The next call attaches anew."""

    async def close(self) -> None:
        """Detach."""


class Destination(Protocol):
    """An entity of the primary."""

    takes_mixture: bool
    """False once the entity refused a batch of several sessions; whoever learns it sets it for all."""

    @property
    def message_limit(self) -> int:
        """The most bytes of a message that goes alone, once :meth:`open` has answered."""

    async def open(self, *, timeout: float) -> int:
        """Answer the most bytes of a batch."""

    async def send(self, batch: WireBatch, *, timeout: float) -> None:
        """Send a batch and wait for its acceptance."""


class Transport(Protocol):
    """Makes the two ends of a move."""

    def source(self, queue: str, *, over: Callable[[], bool], dead_letter: bool = False) -> Source:
        """Answer a new link to a backlog queue, which takes nothing once it is ``over``; the caller closes it."""

    def destination(self, entity: str, *, lane: int = 0) -> Destination:
        """Answer the link to an entity, the same one for everybody; another one for each lane."""


class PairTransport:
    """The transport over the two clients of a pair."""

    def __init__(self, primary: NamespaceClient, secondary: NamespaceClient) -> None:
        self._primary = primary
        self._secondary = secondary

    def source(self, queue: str, *, over: Callable[[], bool], dead_letter: bool = False) -> Source:
        """Answer a new link to a backlog queue, which takes nothing once it is ``over``; the caller closes it."""
        # Without prefetch: what is not in hand is not locked, and no lock ends in a buffer.
        return self._secondary.receive_link(queue, dead_letter=dead_letter, over=over)

    def destination(self, entity: str, *, lane: int = 0) -> Destination:
        """Answer the link to an entity, the same one for everybody; another one for each lane."""
        return self._primary.send_link(entity, lane=lane)
