"""The failover-aware sender (SPEC section 4): what an application sends with, as with the SDK's."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from copy import copy
from datetime import datetime
from types import TracebackType
from typing import Final, Self

from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.amqp_types import typed
from servicebus_pair.core.delivery import Act, Delivery
from servicebus_pair.core.divert import Divert
from servicebus_pair.core.errors import InvalidMessageError, SendError
from servicebus_pair.core.health import FailOver
from servicebus_pair.core.intake import Intake, Message, Messages, outgoing
from servicebus_pair.core.patience import LONGEST_ATTEMPT
from servicebus_pair.core.results import ScheduleResult, SendResult
from servicebus_pair.core.send_link import Turn
from servicebus_pair.core.shared import Shared
from servicebus_pair.core.wire import WireBatch

__all__ = ["Message", "PairSender"]

_SCHEDULED: Final = "x-opt-scheduled-enqueue-time"


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

    async def __aenter__(self) -> Self:
        self._shared.home.check()
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

        However it ends, the state is defined: each message taken from the caller is accepted (in
        ``result``, by route), or unsent, and then in doubt or not. What a collection still holds
        is unsent; an iterator stays where it stands.

        :param messages: a message, or an (asynchronous) iterable of messages.
        :param timeout: seconds for the whole call, kept to half a second; ``None`` waits as long as
            it takes, which is at most about ``failover_interval`` plus the time the backlog needs,
            and longer only while the service answers that it is busy.
        :returns: counts by route, backlog queues and ids.
        :raises InvalidMessageError: ``messages`` is none of these; nothing was taken.
        :raises PairClosedError: the pair is closing or closed, or was opened in another process or event
            loop; nothing was taken.
        :raises ConfigurationError: ``timeout`` is no number of seconds; nothing was taken.
        :raises SendTimeoutError: the time was over first; as every ``SendError``, it carries the unsent messages.
        :raises SendError: not everything was accepted, because of ``cause``: a failure of the
            service, of an observer, or of the caller's iterable.
        :raises CancelledError: the send was cancelled; ``account_of`` answers the ``SendCancelledError`` behind it.
        """
        return await self._deliver(Intake(messages), self._link.send_in_turn, timeout)

    async def schedule(
        self, messages: Message | Collection[Message], at: datetime, *, timeout: float | None = None
    ) -> ScheduleResult:
        """Have messages enqueued at a time; while the entity is failed over they go to the backlog with that time.

        A message whose time is over when it leaves the backlog is enqueued then.

        :param messages: a message or a collection of messages; one without an id is given one.
        :param at: when they become available; with a time zone.
        :param timeout: as for :meth:`send`.
        :returns: sequence numbers, as far as there are any: a diverted message has none yet.
        :raises InvalidMessageError: ``at`` has no time zone, or ``messages`` is no message or collection.
        :raises SendError: as :meth:`send`, with the ``sequence_numbers`` of what was accepted.
        """
        if at.tzinfo is None:
            raise InvalidMessageError(f"at is {at.isoformat()}: it must have a time zone")
        single = isinstance(messages, ServiceBusMessage | AmqpAnnotatedMessage)
        if not (single or isinstance(messages, Collection)):
            raise InvalidMessageError(f"messages is {type(messages).__name__}: allowed are a message and a collection")
        rows = [_scheduled(outgoing(message), at) for message in Intake(messages).rest()]
        numbers: list[int] = []

        async def act(batch: WireBatch, turn: Turn) -> bool:
            given = await self._link.schedule_in_turn(batch, turn, at=at)
            numbers.extend([] if given is None else given)
            return given is not None

        try:
            sent = await self._deliver(Intake(rows), act, timeout)
        except SendError as error:
            error.sequence_numbers = tuple(numbers)
            raise
        return ScheduleResult(sent, tuple(numbers))

    async def cancel_scheduled(self, sequence_numbers: int | Sequence[int], *, timeout: float | None = None) -> None:
        """Cancel messages that :meth:`schedule` gave these numbers; they are on the primary, so it must be reached.

        :param timeout: seconds; ``None`` is 10 s.
        :raises ServiceError: classified: not found, or the primary cannot be reached.
        """
        self._shared.home.check()
        numbers = [sequence_numbers] if isinstance(sequence_numbers, int) else sequence_numbers
        await self._link.cancel_scheduled(numbers, timeout=LONGEST_ATTEMPT if timeout is None else timeout)

    async def _deliver(self, intake: Intake, act: Act, timeout: float | None) -> SendResult:
        self._shared.home.check()
        delivery = Delivery(self.entity, self._shared, link=self._link, divert=self._divert, act=act, timeout=timeout)
        with self._shared.traffic:
            return await delivery.run(intake)

    async def _learn(self) -> None:
        """Take over shared health; a stale "failed over" is pinged once before it is believed."""
        health = await self._board.refresh(self.entity)
        if not health.failed_over:
            await self._learn_of_backlog()
            return
        seen = health.since if health.last_ping is None else health.last_ping
        if self._clock.now() - seen >= self._shared.options.ping_primary_interval.total_seconds():
            await self._shared.prober.ping(self.entity)

    async def _learn_of_backlog(self) -> None:
        """In session order, what an earlier process has diverted goes first."""
        order = self._shared.order
        if order is None:
            return
        empty = await order.is_empty(self.entity)
        if not empty:
            reason = "its backlog is not empty" if empty is False else "whether its backlog is empty cannot be known"
            self._board.apply(self.entity, FailOver(reason, "session order"))


def _scheduled(message: AmqpAnnotatedMessage, at: datetime) -> AmqpAnnotatedMessage:
    """A copy with the time, which is also what travels if it goes to the backlog."""
    copied = copy(message)
    time = typed("TIMESTAMP", int(at.timestamp() * 1000))
    copied.annotations = {**(message.annotations or {}), _SCHEDULED: time}
    return copied
