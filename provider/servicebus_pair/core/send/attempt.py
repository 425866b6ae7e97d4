"""One attempt to send a batch, on the primary or on the backlog: the only code that moves messages in the account."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeAlias, TypeVar

from servicebus_pair.core.health.registry import HealthRegistry
from servicebus_pair.core.model.errors import PairError, ServiceError, TimedOutError
from servicebus_pair.core.model.events import Event, MessagesAccepted, MessagesUnspooled, Route
from servicebus_pair.core.model.interfaces import Clock
from servicebus_pair.core.protocol.amqp_message import AmqpMessage
from servicebus_pair.core.sdk.message_batch import EncodedBatch, message_ref
from servicebus_pair.core.sdk.send_link import SendSlot
from servicebus_pair.core.send.delivery_state import DeliveryState, TrackedMessage
from servicebus_pair.core.spool.spool import Spool

SendOperation: TypeAlias = Callable[[EncodedBatch, SendSlot, Callable[[], None]], Awaitable[bool]]
"""Sends or schedules a batch; returns False when the slot was given up. Raises ServiceError.

The last argument is called right before the first byte."""

ResultT = TypeVar("ResultT")
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

    async def spool(self, messages: Sequence[TrackedMessage], spool: Spool) -> None:
        """Write messages to the spool.

        :raises SpoolError: it does not take them; the account says what may be in it.
        :raises TimedOutError: the lease ended first; likewise.
        :raises InvalidMessageError: a message cannot be kept.
        :raises ObserverError: the messages are in the spool, but an observer missed it.
        """
        refs = tuple(message_ref(each.message) for each in messages)
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
            self._registry.emit(MessagesAccepted(self._entity, Route.SPOOLED, None, refs, at, name))

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
