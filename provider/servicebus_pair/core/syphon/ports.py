"""The transport interface of a drain: receive, send, and settle batches.

The drain needs no more of Service Bus than this, so another transport can replace it. :class:`PairTransport`
implements it over azure-servicebus.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Protocol

from servicebus_pair.core.model.errors import ServiceError
from servicebus_pair.core.model.events import MessageRef
from servicebus_pair.core.sdk.namespace_client import NamespaceClient
from servicebus_pair.core.sdk.received_message import ReceivedMessage
from servicebus_pair.core.sdk.send_link import SendSlot
from servicebus_pair.core.syphon.policies.batch_size import INITIAL_BATCH_SIZE

# A link of a backlog queue has one batch under way: as many as there are usually queues, with room for second links.
_SENDS_OVER_ONE_LINK: Final = 16
_LINKS: Final = 3
_FIRST_RELAYED: Final = 64


class Source(Protocol):
    """A peek-lock receiver of a backlog queue or its dead-letter queue.

    :ivar fell_silent: the last receive ended because nothing more came, as far as that is known.
    """

    fell_silent: bool

    async def receive(self, *, max_messages: int, max_wait_time: float, timeout: float) -> list[ReceivedMessage]:
        """Receive up to ``max_messages``, waiting ``max_wait_time`` seconds for the first; locks no other messages.

        Ends within half a second once the source is paused, and receives nothing then.
        """

    async def request(self, count: int, *, timeout: float) -> None:
        """Ask for ``count`` messages, which the next receive returns, where that is possible.

        If there is none after all, :meth:`drain_credit` takes that back.
        """

    async def peek(self, *, max_messages: int, timeout: float, from_sequence_number: int = 1) -> list[ReceivedMessage]:
        """Return up to ``max_messages`` messages from a sequence number on, without locking them."""

    async def complete(
        self, messages: Sequence[ReceivedMessage], *, timeout: float, request: int = 0
    ) -> list[ServiceError | None]:
        """Complete messages; return for each its error or ``None``.

        :param request: the next receive is for so many messages: see :meth:`request`.
        """

    async def abandon(self, messages: Sequence[ReceivedMessage], *, timeout: float) -> list[ServiceError | None]:
        """Abandon messages, which keep their position; return for each its error or ``None``."""

    async def dead_letter(
        self, message: ReceivedMessage, *, reason: str, description: str, timeout: float
    ) -> ServiceError | None:
        """Move one message to the dead-letter queue; return the error or ``None``."""

    async def drain_credit(self, *, timeout: float) -> None:
        """Drain the link's credit until the next receive; messages in transit are released, uncounted."""

    def detach_soon(self) -> None:
        """Detach in the background, which releases unsettled messages. The next call attaches again."""

    async def close(self) -> None:
        """Detach."""


class SessionSource(Source, Protocol):
    """A peek-lock receiver of one session of a backlog queue that requires sessions.

    :ivar locked_until: when the lock of the session expires, if the service said so.
    """

    locked_until: float | None

    async def accept(self, *, timeout: float) -> str | None:
        """Accept the session and return its id; ``None`` if none has messages that nobody has locked."""

    async def renew(self, *, timeout: float) -> None:
        """Renew the lock of the session."""


class OutgoingBatch(Protocol):
    """Messages that a destination sends together, decoded or encoded."""

    @property
    def messages(self) -> Sequence[Any]:
        """The messages, in order."""

    @property
    def refs(self) -> Sequence[MessageRef]:
        """Id and size of each message."""

    def __len__(self) -> int: ...

    def try_add(self, message: Any) -> bool:
        """Add ``message``; return False when the batch is full. :raises MessageTooLargeError: it fits no batch."""

    def split(self) -> Sequence[OutgoingBatch]:
        """Return two batches with half of the messages each, in order."""


class Destination(Protocol):
    """A sender to an entity of the primary."""

    async def open(self, *, timeout: float) -> int:
        """Attach if needed and return the maximum bytes of a batch."""

    def batch_key(self, message: Any) -> Hashable:
        """Return what all messages of one batch must have in common."""

    def new_batch(self) -> OutgoingBatch:
        """Return an empty batch with the limits of the link, once :meth:`open` has returned."""

    def split_if_mixed(self, batch: Any) -> Sequence[OutgoingBatch]:
        """Split a refused batch of several sessions; return no parts if it has only one."""

    async def send_in_slot(self, batch: Any, slot: SendSlot) -> bool:
        """Send a batch once the link is free and wait until it is accepted; False if ``slot`` did not allow it."""

    async def reopen(self, *, timeout: float) -> None:
        """Attach a new link, which finds out whether the entity accepts senders."""

    async def send_ping(self, message: Any, *, timeout: float) -> None:
        """Send a message outside any batch, which finds out whether the entity accepts messages."""


class Transport(Protocol):
    """Opens links to backlog queues and destinations."""

    def source(self, queue: str, *, should_stop: Callable[[], bool], dead_letter: bool = False) -> Source:
        """Return a new link to a backlog queue, which receives nothing once ``should_stop()``; close it after use."""

    def session(
        self, queue: str, *, wait: float, session_id: str | None, should_stop: Callable[[], bool]
    ) -> SessionSource:
        """Return a new link that accepts one session, by default any with messages, waiting ``wait`` seconds."""

    async def list_sessions(self, queue: str, *, timeout: float) -> list[str]:
        """Return the ids of the sessions of a backlog queue that hold messages, also of those that are locked."""

    def destination(self, entity: str, *, link_index: int = 0) -> Destination:
        """Return the shared link to an entity; there is one per link index."""


class PairTransport:
    """The transport over the two clients of a pair; messages stay encoded where that is possible.

    :param max_bytes: about the most bytes that one link receives at a time.
    :ivar first_batch_messages: most messages that a link receives at first.
    :ivar sends_at_once: most batches on their way to one entity: over as many links, or over one that relays.
    """

    def __init__(self, primary: NamespaceClient, secondary: NamespaceClient, *, max_bytes: int) -> None:
        self._primary = primary
        self._secondary = secondary
        self._relay_bytes = max_bytes if primary.can_relay and secondary.can_relay else 0
        self.sends_at_once = _SENDS_OVER_ONE_LINK if self._relay_bytes else _LINKS
        # A relay limits the bytes that arrive itself, from the first message on.
        self.first_batch_messages = _FIRST_RELAYED if self._relay_bytes else INITIAL_BATCH_SIZE

    def source(self, queue: str, *, should_stop: Callable[[], bool], dead_letter: bool = False) -> Source:
        """Return a new link to a backlog queue, which receives nothing once ``should_stop()``; close it after use."""
        # No prefetch: a buffered message is locked, and its lock could end in the buffer.
        return self._secondary.receive_link(
            queue, dead_letter=dead_letter, should_stop=should_stop, relay_bytes=self._relay_bytes
        )

    def session(
        self, queue: str, *, wait: float, session_id: str | None, should_stop: Callable[[], bool]
    ) -> SessionSource:
        """Return a new link that accepts one session, by default any with messages, waiting ``wait`` seconds."""
        return self._secondary.session_link(
            queue, wait=wait, session_id=session_id, should_stop=should_stop, relay_bytes=self._relay_bytes
        )

    async def list_sessions(self, queue: str, *, timeout: float) -> list[str]:
        """Return the ids of the sessions of a backlog queue that hold messages, also of those that are locked."""
        return await self._secondary.list_sessions(queue, timeout=timeout)

    def destination(self, entity: str, *, link_index: int = 0) -> Destination:
        """Return the shared link to an entity; there is one per link index, or one that sends several at a time."""
        if self._relay_bytes:
            return self._primary.relay_send_link(entity)
        return self._primary.send_link(entity, link_index=link_index)
