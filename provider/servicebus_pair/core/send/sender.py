"""The failover-aware sender (SPEC section 4), used like the SDK's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Self

from servicebus_pair.core.model.errors import InvalidMessageError
from servicebus_pair.core.model.results import ScheduleResult, SendResult
from servicebus_pair.core.protocol.amqp_message import SCHEDULED_TIME, AmqpMessage
from servicebus_pair.core.protocol.typed_values import amqp_typed
from servicebus_pair.core.sdk.message_batch import EncodedBatch
from servicebus_pair.core.sdk.messages import InputMessages, Message, Messages, is_message, to_amqp_message
from servicebus_pair.core.sdk.send_link import SendSlot
from servicebus_pair.core.send.backlog_sender import BacklogSender
from servicebus_pair.core.send.delivery import Delivery
from servicebus_pair.core.send.delivery_state import DeliveryState
from servicebus_pair.core.send.pair_context import PairContext
from servicebus_pair.core.send.sender_context import SenderContext
from servicebus_pair.core.send.timeouts import MAX_CALL_TIMEOUT

__all__ = ["Message", "PairSender"]


class PairSender:
    """Sends to one queue or topic of the primary, or to the backlog while that entity is failed over.

    Created by ``NamespacePair.sender``; an asynchronous context manager. Delivery is at least once: a message for
    which :meth:`send` returned is on the primary or in a backlog queue.

    :raises ConfigurationError: with session order, the pair has a spool and no store of shared health.
    """

    def __init__(self, entity: str, context: PairContext) -> None:
        if context.order is not None:
            context.order.check_spool()
        self.entity = entity
        self._context = context
        self._link = context.primary.send_link(entity)
        self._shared = SenderContext(entity, context, link=self._link, backlog=BacklogSender(entity, context))

    async def __aenter__(self) -> Self:
        self._context.owner.check()
        self._context.registry.watch(self.entity)
        if self._context.spool is not None:
            self._context.spool.warn_if_unusable()
        try:
            await self._load_shared_health()
        except BaseException:
            self._context.registry.unwatch(self.entity)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._context.registry.unwatch(self.entity)
        await self._context.registry.flush()

    async def send(self, messages: Messages, *, timeout: float | None = None) -> SendResult:
        """Send one message or many; large inputs are streamed and batched by bytes.

        A message without an id gets one; messages are not changed otherwise.

        However the send ends, each message taken from the caller is accepted (in ``result``, by route) or unsent,
        and unsent messages may be in doubt. The remaining messages of a collection are unsent; an iterator keeps
        its position.

        :param messages: a message, or an (asynchronous) iterable of messages.
        :param timeout: seconds for the whole call, accurate to half a second. With ``None`` the call takes at most
            about ``failover_interval`` plus the time the backlog needs, longer only while the service is busy.
        :returns: counts by route, backlog queues and ids.
        :raises InvalidMessageError: ``messages`` has another type; nothing was taken.
        :raises PairClosedError: the pair is closing or closed, or was opened in another process or event loop;
            nothing was taken.
        :raises ConfigurationError: ``timeout`` is not a number of seconds; nothing was taken.
        :raises SendTimeoutError: the timeout expired; like every ``SendError`` it carries the unsent messages.
        :raises SendError: not everything was accepted because of ``cause``: a failure of the service, of an
            observer, or of the caller's iterable.
        :raises CancelledError: the send was cancelled; ``find_send_error`` returns the ``SendCancelledError``.
        """
        given = InputMessages(messages)
        self._context.owner.check()
        delivery = Delivery(self._shared, operation=self._link.send_in_slot, state=DeliveryState(), timeout=timeout)
        with self._context.in_flight:
            return await delivery.run(given)

    async def schedule(
        self, messages: Message | Collection[Message], at: datetime, *, timeout: float | None = None
    ) -> ScheduleResult:
        """Schedule messages; while the entity is failed over they go to the backlog with their scheduled time.

        A message whose time has passed when it leaves the backlog is enqueued at once.

        :param messages: a message or a collection of messages; one without an id gets one.
        :param at: when they become available; with a time zone.
        :param timeout: as for :meth:`send`.
        :returns: counts, and the sequence numbers of messages accepted by the primary; diverted ones have none yet.
        :raises InvalidMessageError: ``at`` has no time zone, or ``messages`` is neither a message nor a collection.
        :raises SendError: as :meth:`send`, with the ``sequence_numbers`` of what was accepted.
        """
        if at.tzinfo is None:
            raise InvalidMessageError(f"at is {at.isoformat()}: it must have a time zone")
        if not (is_message(messages) or isinstance(messages, Collection)):
            raise InvalidMessageError(f"messages is {type(messages).__name__}: allowed are a message and a collection")
        scheduled = [_with_schedule(to_amqp_message(message), at) for message in InputMessages(messages).remaining()]
        state = DeliveryState()

        async def schedule_batch(batch: EncodedBatch, slot: SendSlot, on_start: Callable[[], None]) -> bool:
            assigned = await self._link.schedule_in_slot(batch, slot, on_start, at=at)
            state.sequence_numbers += [] if assigned is None else assigned
            return assigned is not None

        self._context.owner.check()
        delivery = Delivery(self._shared, operation=schedule_batch, state=state, timeout=timeout)
        with self._context.in_flight:
            sent = await delivery.run(InputMessages(scheduled))
        return ScheduleResult(sent, tuple(state.sequence_numbers))

    async def cancel_scheduled(self, sequence_numbers: int | Sequence[int], *, timeout: float | None = None) -> None:
        """Cancel scheduled messages on the primary, by the sequence numbers that :meth:`schedule` returned.

        :param timeout: seconds; 10 by default.
        :raises ServiceError: a number is not found, or the primary cannot be reached.
        """
        self._context.owner.check()
        numbers = [sequence_numbers] if isinstance(sequence_numbers, int) else sequence_numbers
        await self._link.cancel_scheduled(numbers, timeout=MAX_CALL_TIMEOUT if timeout is None else timeout)

    async def _load_shared_health(self) -> None:
        """Load the health shared by other processes; ping once before trusting an old failover."""
        health = await self._context.registry.refresh(self.entity)
        if not health.failed_over:
            await self._check_ordered_backlog()
            return
        confirmed = health.since if health.last_ping is None else health.last_ping
        age = self._context.clock.now() - confirmed
        if age >= self._context.options.ping_primary_interval.total_seconds():
            await self._context.prober.ping(self.entity)

    async def _check_ordered_backlog(self) -> None:
        """With session order, divert until the backlog of an earlier process is drained."""
        if self._context.order is not None:
            await self._context.order.divert_behind_backlog(self.entity, spool=self._context.spool)


def _with_schedule(message: AmqpMessage, at: datetime) -> AmqpMessage:
    """Return a copy with the scheduled time as an annotation, which also travels with a backlog copy."""
    time = amqp_typed("TIMESTAMP", int(at.timestamp() * 1000))
    return replace(message, annotations={**(message.annotations or {}), SCHEDULED_TIME: time})
