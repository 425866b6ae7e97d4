"""The account of one send (SPEC section 4): each message is in exactly one state, kept by its identity.

A message is queued, in flight, accepted by a route, or refused. A message whose attempt ended without an answer is in
doubt: it may be stored, and stays in doubt until it is accepted, which may then be a second copy. Only the attempts in
this module, on the primary, the backlog or the spool, move messages in the account.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from enum import Enum, auto
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from servicebus_pair.core.health.registry import HealthRegistry
from servicebus_pair.core.model.errors import PairError, ServiceError, TimedOutError
from servicebus_pair.core.model.events import Event, MessagesAccepted, MessagesUnspooled, Route
from servicebus_pair.core.model.interfaces import Clock
from servicebus_pair.core.model.results import SendResult
from servicebus_pair.core.protocol.amqp_message import AmqpMessage
from servicebus_pair.core.protocol.batching import too_large
from servicebus_pair.core.sdk.message_batch import EncodedBatch, message_ref
from servicebus_pair.core.sdk.send_link import SendSlot
from servicebus_pair.core.spool.spool import Spool

SendOperation: TypeAlias = Callable[[EncodedBatch, SendSlot, Callable[[], None]], Awaitable[bool]]
"""Sends or schedules a batch; returns False when the slot was given up. Raises ServiceError.

The last argument is called right before the first byte."""

ResultT = TypeVar("ResultT")


class MessageStatus(Enum):
    """State of one message of a send."""

    QUEUED = auto()
    IN_FLIGHT = auto()
    ACCEPTED = auto()
    REFUSED = auto()


class TrackedMessage:
    """One message of a send and its state; compared by identity, since a caller may send one object twice.

    :ivar may_be_stored: an attempt ended without an answer.
    :ivar verdict: why the service refused the message.
    """

    __slots__ = ("may_be_stored", "message", "status", "verdict")

    def __init__(self, message: AmqpMessage) -> None:
        self.message = message
        self.status = MessageStatus.QUEUED
        self.may_be_stored = False
        self.verdict: ServiceError | None = None

    @property
    def in_doubt(self) -> bool:
        """Whether the message may be stored although no confirmation arrived."""
        return self.may_be_stored or self.status is MessageStatus.IN_FLIGHT


class DeliveryState:
    """All messages of one send. Accepted messages are released; only their ids are kept.

    :ivar sequence_numbers: those that the primary assigned, in the order of acceptance.
    """

    def __init__(self) -> None:
        self.sequence_numbers: list[int] = []
        self._accepted: list[SendResult] = []
        # In the order in which they were taken from the caller.
        self._not_accepted: dict[TrackedMessage, None] = {}

    def take(self, message: AmqpMessage) -> TrackedMessage:
        """Take a message from the caller: it is queued."""
        tracked = TrackedMessage(message)
        self._not_accepted[tracked] = None
        return tracked

    def start_attempt(self, messages: Iterable[TrackedMessage]) -> None:
        """Record that the first byte of these messages is about to be sent."""
        for each in messages:
            each.status = MessageStatus.IN_FLIGHT

    def end_attempt(self, messages: Iterable[TrackedMessage], *, may_be_stored: bool) -> None:
        """Record that an attempt failed: the messages in flight are queued again.

        :param may_be_stored: no answer arrived, so that the messages are in doubt from now on.
        """
        for each in messages:
            if each.status is MessageStatus.IN_FLIGHT:
                each.status = MessageStatus.QUEUED
                each.may_be_stored = each.may_be_stored or may_be_stored

    def accept(
        self, messages: Sequence[TrackedMessage], *, route: Route, queue: str | None, ids: Iterable[str]
    ) -> None:
        """Record that the service confirmed these messages.

        :param ids: theirs, in the same order.
        """
        ids = tuple(ids)
        twice: tuple[str, ...] = ()
        for each, message_id in zip(messages, ids, strict=True):
            each.status = MessageStatus.ACCEPTED
            del self._not_accepted[each]
            if each.may_be_stored:
                twice += (message_id,)
        if route is Route.SPOOLED:
            part = SendResult(spooled=len(ids), message_ids=ids, spooled_ids=ids, duplicates_possible_ids=twice)
        elif route is Route.PRIMARY:
            part = SendResult(primary=len(ids), message_ids=ids, primary_ids=ids, duplicates_possible_ids=twice)
        else:
            part = SendResult(
                diverted=len(ids),
                backlog_queues=() if queue is None else (queue,),
                message_ids=ids,
                diverted_ids=ids,
                duplicates_possible_ids=twice,
            )
        self._accepted.append(part)

    def refuse(self, message: TrackedMessage, verdict: ServiceError) -> None:
        """Record that the service does not take this message, whichever others it takes."""
        message.status, message.verdict = MessageStatus.REFUSED, verdict

    @property
    def unsent(self) -> tuple[AmqpMessage, ...]:
        """The messages that were not accepted, refused ones included, in the order of the caller."""
        return tuple(each.message for each in self._not_accepted)

    @property
    def in_doubt(self) -> tuple[AmqpMessage, ...]:
        """The members of :attr:`unsent` that may be stored although no confirmation arrived."""
        return tuple(each.message for each in self._not_accepted if each.in_doubt)

    @property
    def refused(self) -> tuple[TrackedMessage, ...]:
        """The messages that the service refused, with their verdicts."""
        return tuple([each for each in self._not_accepted if each.status is MessageStatus.REFUSED])

    def result(self) -> SendResult:
        """Return what was accepted so far."""
        match self._accepted:
            case [only]:
                return only
        return SendResult.total(self._accepted)


_NO_COPIES: Final[Mapping[TrackedMessage, AmqpMessage]] = {}


class TrackedBatch:
    """A batch to be sent and the messages that are in it; implements ``batching.Batch``.

    :param copies: what is sent in place of a message; by default the message itself.
    """

    def __init__(self, encoded: EncodedBatch, *, copies: Mapping[TrackedMessage, AmqpMessage] = _NO_COPIES) -> None:
        self.encoded = encoded
        self.messages: list[TrackedMessage] = []
        self._copies = copies

    def try_add(self, tracked: TrackedMessage) -> bool:
        """Add a message; return False when the batch is full.

        :raises MessageTooLargeError: it fits neither a batch nor the link.
        :raises InvalidMessageError: one of its values has no AMQP encoding.
        """
        if not self.encoded.try_add(self._copies.get(tracked, tracked.message)):
            return False
        self.messages.append(tracked)
        return True

    def __len__(self) -> int:
        return len(self.messages)


class AttemptExecutor:
    """Makes the attempts of one send and keeps its account.

    :param state: the account.
    :param registry: passes events to the observers.
    :param unspooled_from: name of the spool that the messages come from.
    :param hold_lease: returns when the lease ends under which an attempt begins, and with it the attempt.
    """

    def __init__(
        self,
        entity: str,
        state: DeliveryState,
        *,
        registry: HealthRegistry,
        clock: Clock,
        unspooled_from: str | None = None,
        hold_lease: Callable[[], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self.state = state
        self._entity = entity
        self._registry = registry
        self._clock = clock
        self._accepted: Callable[..., Event] = (
            MessagesAccepted if unspooled_from is None else partial(MessagesUnspooled, spool=unspooled_from)
        )
        self._hold_lease = hold_lease

    async def attempt(
        self, batch: TrackedBatch, operation: SendOperation, slot: SendSlot, *, route: Route, queue: str | None = None
    ) -> bool:
        """Send a batch once; return False when ``slot`` was given up and nothing was sent.

        :raises ServiceError: classified; the account says what is in doubt.
        :raises ObserverError: the batch was accepted, but an observer missed it.
        """
        sending = operation(batch.encoded, slot, partial(self._start, batch))
        try:
            if not await (sending if self._hold_lease is None else self._within(self._hold_lease(), sending)):
                return False
        except ServiceError as error:
            self.state.end_attempt(batch.messages, may_be_stored=error.may_be_stored)
            raise
        self.state.accept(batch.messages, route=route, queue=queue, ids=batch.encoded.ids)
        if self._registry.observers:
            refs = batch.encoded.refs
            self._registry.emit(self._accepted(self._entity, route, queue, refs, self._clock.now()))
        return True

    def _start(self, batch: TrackedBatch) -> None:
        self.state.start_attempt(batch.messages)
        if self._registry.observers:
            # Once the send waits, its time is free: digests cost as much as writing them to a ledger.
            asyncio.get_running_loop().call_soon(batch.encoded.prepare_refs)

    async def spool(self, messages: Sequence[TrackedMessage], spool: Spool, *, max_bytes: int) -> None:
        """Write messages to the spool; those are refused that the entity would never take from there.

        :param max_bytes: of a message, as the entity last told; 0 if it never did.
        :raises SpoolError: it does not take them; the account says what may be in it.
        :raises TimedOutError: the lease ended first; likewise.
        :raises InvalidMessageError: a message cannot be kept.
        :raises ObserverError: the messages are in the spool, but an observer missed it.
        """
        refs = [message_ref(each.message) for each in messages]
        if max_bytes:
            for each, ref in zip(messages, refs, strict=True):
                if ref.size_bytes > max_bytes:
                    self.state.refuse(each, too_large(ref.message_id, ref.size_bytes, max_bytes))
            refs = [ref for ref in refs if ref.size_bytes <= max_bytes]
            messages = [each for each in messages if each.status is not MessageStatus.REFUSED]
            if not messages:
                return
        self.state.start_attempt(messages)
        try:
            writing = spool.write(self._entity, [each.message for each in messages])
            await (writing if self._hold_lease is None else self._within(self._hold_lease(), writing))
            if self._registry.lease_seconds_left(self._entity) <= 0:
                raise TimedOutError("it was written, perhaps after the lease had ended")
        except PairError as error:
            self.state.end_attempt(messages, may_be_stored=error.may_be_stored)
            raise
        self.state.accept(messages, route=Route.SPOOLED, queue=None, ids=[ref.message_id for ref in refs])
        if self._registry.observers:
            at, name = self._clock.now(), await spool.name()
            self._registry.emit(MessagesAccepted(self._entity, Route.SPOOLED, None, tuple(refs), at, name))

    async def _within(self, holding: Coroutine[Any, Any, None], sending: Awaitable[ResultT]) -> ResultT:
        lease = asyncio.ensure_future(holding)
        attempt = asyncio.ensure_future(sending)
        try:
            await asyncio.wait({attempt, lease}, return_when=asyncio.FIRST_COMPLETED)
            if not attempt.done():
                attempt.cancel()
                await asyncio.wait({attempt})
            if attempt.cancelled():
                raise TimedOutError(
                    f"an attempt to send to {self._entity} was ended: its health changed or could not be read any more"
                )
            return attempt.result()
        finally:
            lease.cancel()
            attempt.cancel()
