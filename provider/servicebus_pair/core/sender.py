"""The failover-aware sender (SPEC section 4): asks health where to go, packs, sends, diverts."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from servicebus_pair.core.batching import Packer, partition_key
from servicebus_pair.core.clients import WireBatch
from servicebus_pair.core.divert import LONGEST_ATTEMPT, Divert
from servicebus_pair.core.errors import (
    InvalidMessageError,
    PairError,
    SendError,
    ServerBusyError,
    ServiceError,
    TimedOutError,
    UnreachableError,
)
from servicebus_pair.core.events import MessagesAccepted, Route
from servicebus_pair.core.health import SendFailed, SendSucceeded, State
from servicebus_pair.core.results import SendResult
from servicebus_pair.core.shared import SMALLEST_BATCH_LIMIT, Shared

__all__ = ["Message", "PairSender"]

Message: TypeAlias = ServiceBusMessage | AmqpAnnotatedMessage
Messages: TypeAlias = Message | Iterable[Message] | AsyncIterable[Message]

_FIRST_PAUSE: Final = 0.25
_LONGEST_PAUSE: Final = 5.0
_SHORTEST_ATTEMPT: Final = 1.5


class PairSender:
    """Sends to one queue or topic of the primary, or to the backlog while that is failed over.

    Made by ``NamespacePair.sender``; an asynchronous context manager. Guarantee: a message for
    which :meth:`send` returned is on the primary or in a backlog queue, at least once.
    """

    def __init__(self, entity: str, shared: Shared) -> None:
        self.entity = entity
        self._shared = shared
        self._board = shared.board
        self._clock = shared.clock
        self._link = shared.primary.send_link(entity)
        self._divert = Divert(entity, shared)
        self._batch_limit = SMALLEST_BATCH_LIMIT

    async def __aenter__(self) -> Self:
        await self._learn()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._board.flush()

    async def send(self, messages: Messages, *, timeout: float | None = None) -> SendResult:
        """Send one message or many; large inputs are streamed, packed by bytes.

        A message without an id is given one. The messages themselves are not changed otherwise.

        :param messages: a message, or an (asynchronous) iterable of messages.
        :param timeout: seconds for the whole call; ``None`` waits as long as it takes, which is at
            most about ``failover_interval`` plus the time the backlog needs.
        :returns: counts by route, backlog queues and ids.
        :raises SendError: not everything was accepted; it carries what was, and the unsent messages.
        """
        deadline = None if timeout is None else self._clock.now() + timeout
        parts: list[SendResult] = []
        # The link's limit is asked for when the first batch is opened.
        packer = Packer(lambda: WireBatch(self._batch_limit), key=partition_key)
        in_hand: list[AmqpAnnotatedMessage] = []
        source = _stream(messages)
        try:
            async for message in source:
                in_hand = [_outgoing(message)]
                if not packer.open_batches():
                    await self._learn_limit(deadline)
                full = packer.add(in_hand[0])
                in_hand = [] if full is None else full.messages
                if full is not None:
                    parts.append(await self._deliver(full, deadline))
            for batch in packer.rest():
                in_hand = batch.messages
                parts.append(await self._deliver(batch, deadline))
        except SendError as error:
            # The divert knows best what part of its batch was accepted.
            rest = [*error.unsent, *_packed(packer), *await _remaining(messages, source)]
            parts.append(error.result)
            raise type(error)(
                str(error), cause=error.cause, result=SendResult.total(parts), unsent=rest
            ) from error.cause
        except PairError as error:
            rest = [*in_hand, *_packed(packer), *await _remaining(messages, source)]
            result = SendResult.total(parts)
            raise SendError(
                f"sending to {self.entity} ended after {result.sent} messages, {len(rest)} unsent: {error}",
                cause=error,
                result=result,
                unsent=rest,
            ) from error
        return SendResult.total(parts)

    async def _learn(self) -> None:
        """Take over shared health; a stale "failed over" is pinged once before it is believed."""
        health = await self._board.refresh(self.entity)
        if not health.failed_over:
            return
        seen = health.since if health.last_ping is None else health.last_ping
        if self._clock.now() - seen >= self._shared.options.ping_primary_interval.total_seconds():
            await self._shared.prober.ping(self.entity)

    async def _learn_limit(self, deadline: float | None) -> None:
        """Ask the link for its batch limit, which an attached one knows, unless the primary cannot be asked now."""
        if self._board.current(self.entity).failed_over:
            return
        began = self._clock.now()
        try:
            self._batch_limit = await self._link.open(timeout=self._attempt_seconds(began, deadline))
        except ServiceError as error:
            self._raise_if_final(error, deadline)
            if error.fails_over:
                self._board.apply(self.entity, SendFailed(str(error), began))

    async def _deliver(self, batch: WireBatch, deadline: float | None) -> SendResult:
        """Bring one batch to the primary or, once the entity is failed over, to the backlog."""
        pause = _FIRST_PAUSE
        forgiven = False
        last: ServiceError | None = None
        while not self._board.current(self.entity).failed_over:
            began = self._clock.now()
            was_attached = self._link.attached
            try:
                await self._link.send(batch, timeout=self._attempt_seconds(began, deadline))
            except ServiceError as error:
                last = error
                self._raise_if_final(error, deadline)
                if isinstance(error, ServerBusyError):
                    await self._wait(self._shared.options.server_busy_delay.total_seconds(), deadline, error)
                    continue
                if isinstance(error, UnreachableError) and was_attached and not forgiven:
                    forgiven = True
                    continue
                self._board.apply(self.entity, SendFailed(str(error), began))
                if not self._board.current(self.entity).failed_over:
                    await self._wait(min(pause, self._interval_left()), deadline, error)
                    pause = min(pause * 2, _LONGEST_PAUSE)
            else:
                self._board.apply(self.entity, SendSucceeded())
                return self._accepted(batch)
        return await self._divert.deliver(batch.messages, because=last, deadline=deadline)

    def _accepted(self, batch: WireBatch) -> SendResult:
        at = self._clock.now()
        self._board.tell(MessagesAccepted(self.entity, Route.PRIMARY, None, tuple(batch.refs), at))
        return SendResult(primary=len(batch), message_ids=tuple(ref.message_id for ref in batch.refs))

    def _raise_if_final(self, error: ServiceError, deadline: float | None) -> None:
        if not (error.fails_over or error.retriable):
            raise error
        if deadline is not None and self._clock.now() >= deadline:
            raise error

    async def _wait(self, seconds: float, deadline: float | None, error: ServiceError) -> None:
        if deadline is not None and self._clock.now() + seconds >= deadline:
            raise error
        await self._board.wait_for_change(self.entity, seconds=seconds)

    def _interval_left(self) -> float:
        health = self._board.current(self.entity)
        interval = self._shared.options.failover_interval.total_seconds()
        return max(0.0, health.since + interval - self._clock.now())

    def _attempt_seconds(self, began: float, deadline: float | None) -> float:
        """How long one attempt may take: to the end of the failover interval, within bounds.

        A frozen primary must not delay the failover by more than the shortest attempt.
        """
        suspect = self._board.current(self.entity).state is State.SUSPECT
        interval = self._shared.options.failover_interval.total_seconds()
        left = self._interval_left() if suspect else interval
        seconds = min(LONGEST_ATTEMPT, max(_SHORTEST_ATTEMPT, left))
        if deadline is None:
            return seconds
        if deadline <= began:
            raise TimedOutError(f"send to {self.entity}: the time given by the caller is over")
        return min(seconds, deadline - began)


async def _stream(messages: Messages) -> AsyncIterator[Message]:
    match messages:
        case ServiceBusMessage() | AmqpAnnotatedMessage():
            yield messages
        case AsyncIterable():
            async for message in messages:
                yield message
        case _:
            for message in messages:
                yield message


def _outgoing(message: Any) -> AmqpAnnotatedMessage:
    """The AMQP form of a message, with an id."""
    match message:
        case ServiceBusMessage():
            outgoing = message.raw_amqp_message
        case AmqpAnnotatedMessage():
            outgoing = message
        case _:
            raise InvalidMessageError(
                f"a message is {type(message).__name__}: allowed are ServiceBusMessage and AmqpAnnotatedMessage"
            )
    properties = AmqpMessageProperties() if outgoing.properties is None else outgoing.properties
    if properties.message_id is None:
        properties.message_id = uuid.uuid4().hex
    outgoing.properties = properties
    return outgoing


def _packed(packer: Packer[WireBatch]) -> list[AmqpAnnotatedMessage]:
    return [message for batch in packer.open_batches() for message in batch.messages]


async def _remaining(messages: Messages, source: AsyncIterator[Message]) -> list[Any]:
    """What the source still holds; a stream that the caller owns is left where it stands."""
    if isinstance(messages, Sequence):
        return [
            message.raw_amqp_message if isinstance(message, ServiceBusMessage) else message async for message in source
        ]
    return []
