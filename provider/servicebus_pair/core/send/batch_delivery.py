"""Delivers the batches of one send: executes what is decided, until each message has its end (SPEC section 4)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from servicebus_pair.core.model.errors import (
    MessageTooLargeError,
    NoBacklogQueueError,
    SendTimeoutError,
    SpoolError,
    TimedOutError,
)
from servicebus_pair.core.model.health_state import EntityHealth
from servicebus_pair.core.model.health_transitions import BeginSpool
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.model.results import SendResult
from servicebus_pair.core.protocol.batching import BatchPacker
from servicebus_pair.core.send.attempt import AttemptExecutor, SendOperation, TrackedBatch
from servicebus_pair.core.send.backlog_copies import UnencodedBatch
from servicebus_pair.core.send.delivery_state import DeliveryState, MessageStatus, TrackedMessage
from servicebus_pair.core.send.diversion import checked_copy
from servicebus_pair.core.send.next_step import (
    AttemptHistory,
    Divert,
    Fail,
    Pause,
    Probe,
    Refuse,
    Split,
    Spool,
    TimeOut,
    next_step,
)
from servicebus_pair.core.send.pair_context import lease
from servicebus_pair.core.send.primary_sender import NO_HISTORY, PrimarySender, SenderContext
from servicebus_pair.core.send.timeouts import Deadline

_log = get_logger(__name__)


@dataclass(slots=True)
class _Part:
    """Messages that are sent together, and what happened to them so far."""

    messages: list[TrackedMessage]
    batch: TrackedBatch | None = None
    history: AttemptHistory = NO_HISTORY


class BatchDelivery:
    """Delivers the batches of one send, one after the other; used once.

    :param operation: sends or schedules a batch over the link to the entity.
    :param state: the account of the send.
    :param deadline: of the whole send.
    """

    def __init__(
        self, sender: SenderContext, *, operation: SendOperation, state: DeliveryState, deadline: Deadline
    ) -> None:
        context = sender.pair
        self._sender = sender
        self._entity = sender.entity
        self._context = context
        self._registry = context.registry
        self._clock = context.clock
        self._link = sender.link
        self._policy = sender.policy
        self._deadline = deadline
        executor = AttemptExecutor(
            sender.entity,
            state,
            registry=context.registry,
            clock=context.clock,
            unspooled_from=context.unspooled_from,
            hold_lease=None if context.order is None else context.order.lease_holder(sender.entity),
        )
        self._executor = executor
        self._primary = PrimarySender(sender, executor, operation=operation, deadline=deadline)

    async def open_link(self) -> None:
        """Open the link to the entity for its size limits, unless the primary cannot be reached now."""
        await self._primary.open_link()

    def new_batch(self) -> TrackedBatch | UnencodedBatch:
        """Return an empty batch, encoded only if it is likely to go to the primary."""
        return UnencodedBatch() if self._primary.failed_over else TrackedBatch(self._link.new_batch())

    async def deliver(self, batch: TrackedBatch | UnencodedBatch) -> None:
        """Deliver the messages of a batch, in parts where that is necessary."""
        parts = deque([_Part(batch.messages, batch if isinstance(batch, TrackedBatch) else None)])
        order = self._context.order
        if order is None:
            await self._deliver_parts(parts)
            return
        try:
            timeout = self._deadline.remaining()
            await order.enter_send(self._entity, timeout=timeout, unspools=self._policy.unspools)
        except TimeoutError as error:
            raise self._deadline.timeout_error(last=None) from error
        try:
            await self._deliver_parts(parts)
        finally:
            order.leave_send(self._entity)

    async def _deliver_parts(self, parts: deque[_Part]) -> None:
        while parts:
            part = parts.popleft()
            try:
                while (instead := await self._take_step(part)) is None:
                    pass
            except SendTimeoutError:
                if not self._policy.spools:
                    raise
                instead = await self._finish(part, Spool())
            parts.extendleft(reversed(instead))

    async def _take_step(self, part: _Part) -> list[_Part] | None:
        """Take the next step of a part; return the parts that take its place, or ``None`` when it goes on itself."""
        step = next_step(
            part.history,
            await self._settled_health(part.history),
            now=self._clock.now(),
            messages=len(part.messages),
            policy=self._policy,
            deadline=self._deadline.at,
            backlog_is_down=self._policy.spools and self._context.backlog_health.is_down,
        )
        if isinstance(step, Split | Refuse | Divert | Spool | Fail | TimeOut):
            return await self._finish(part, step)
        if isinstance(step, Pause | Probe):
            await self._wait(part, step)
            return None
        if part.batch is None:
            return self._encoded(part)
        history = await self._primary.attempt(part.batch, part.history)
        if history is None:
            return []
        part.history = history
        return self._encoded(part) if self._is_refused_mixture(part) else None

    async def _settled_health(self, history: AttemptHistory) -> EntityHealth:
        if self._context.order is None:
            return self._registry.current(self._entity)
        return await lease(self._context, self._entity, self._deadline, last=history.last_error)

    async def _wait(self, part: _Part, step: Pause | Probe) -> None:
        if isinstance(step, Probe):
            part.history = await self._primary.probe(part.history)
        else:
            await self._registry.wait_for_change(self._entity, timeout=step.seconds)
            part.history = part.history.paused()

    async def _finish(self, part: _Part, step: Split | Refuse | Divert | Spool | Fail | TimeOut) -> list[_Part]:
        """Execute the last step of a part; return the parts that take its place."""
        match step:
            case Split():
                middle = (len(part.messages) + 1) // 2
                halves = part.messages[:middle], part.messages[middle:]
                return [_Part(half, None, part.history.part()) for half in halves]
            case Refuse():
                self._refuse(part)
                return []
            case Divert():
                return await self._divert(part)
            case Spool():
                return await self._spool(part)
            case TimeOut(error):
                raise self._deadline.timeout_error(last=error)
            case Fail(error):
                raise error

    def _encoded(self, part: _Part) -> list[_Part]:
        """Pack messages for the primary, in their order within each session."""
        packer = BatchPacker(
            lambda: TrackedBatch(self._link.new_batch()), key=lambda tracked: self._link.batch_key(tracked.message)
        )
        full = [batch for each in part.messages if (batch := packer.add(each)) is not None]
        return [_Part(batch.messages, batch, part.history) for batch in (*full, *packer.flush())]

    def _is_refused_mixture(self, part: _Part) -> bool:
        """Return whether the entity refused a batch for mixing sessions; from now on they are kept apart."""
        error = part.history.error
        mixed = error is not None and self._link.refuses_mixture(error, [each.message for each in part.messages])
        if mixed:
            part.history = part.history.part()
        return mixed

    def _refuse(self, part: _Part) -> None:
        [message] = part.messages
        verdict = part.history.last_error
        assert verdict is not None  # noqa: S101 - for the type checker
        _log.warning("entity=%s refuses one message and takes others: %s", self._entity, verdict)
        self._executor.state.refuse(message, verdict)

    async def _divert(self, part: _Part) -> list[_Part]:
        """Send a part to the backlog; return what is left because the entity failed back meanwhile."""
        try:
            left = await self._sender.backlog.send(
                part.messages, self._executor, because=part.history.last_error, deadline=self._deadline
            )
        except (NoBacklogQueueError, SendTimeoutError) as error:
            part.history = part.history.not_diverted(error)
            left = [each for each in part.messages if each.status is MessageStatus.QUEUED]
        return [_Part(left, None, part.history.part())] if left else []

    async def _spool(self, part: _Part) -> list[_Part]:
        """Write a part to the spool; return what is left because the route of the entity changed meanwhile."""
        history, spool = part.history, self._context.spool
        try:
            if self._policy.ordered:
                part.messages = [each for each in part.messages if self._fits_backlog(each)]
                if not part.messages:
                    return []
            else:
                self._sender.backlog.try_again()
            if not self._policy.ordered or await self._is_route_to_spool(history):
                assert spool is not None  # noqa: S101 - for the type checker
                await self._executor.spool(part.messages, spool)
                return []
        except TimedOutError as error:
            _log.info("entity=%s: a write to the spool was ended: %s", self._entity, error)
        except SpoolError as error:
            reason = history.backlog_error or history.last_error
            why = "" if reason is None else f" ({reason})"
            raise NoBacklogQueueError(
                f"neither namespace takes messages for {self._entity}{why}, nor does the spool: {error}",
                cause=error if reason is None else reason,
                result=SendResult(),
                unsent=(),
            ) from error
        return [_Part(part.messages, None, replace(history.part(), backlog_error=None))]

    def _fits_backlog(self, tracked: TrackedMessage) -> bool:
        """Return whether the backlog can take a message, where it goes with session order; else refuse it."""
        try:
            checked_copy(tracked.message, entity=self._entity)
        except MessageTooLargeError as error:
            self._executor.state.refuse(tracked, error)
            return False
        return True

    async def _is_route_to_spool(self, history: AttemptHistory) -> bool:
        """With session order, return whether all processes send messages of the entity to the spool of this one.

        That holds at the moment of the return: nothing may be waited for before the write begins.

        :raises SpoolError: they go to another spool, or the processes could not agree.
        """
        spool = self._context.spool
        name, begins = None if spool is None else await spool.name(), False
        if name is not None and history.backlog_error is not None:
            begins = not self._registry.current(self._entity).spool
            reason = f"no backlog queue takes messages: {history.backlog_error.cause}"
            self._registry.apply(self._entity, BeginSpool(name, reason))
        chosen = (await lease(self._context, self._entity, self._deadline, last=history.last_error)).spool
        if chosen and chosen != name:
            raise SpoolError(
                f"to keep the order of sessions, its messages go behind those in the spool {chosen}, and this process "
                f"has {'no spool' if name is None else f'the spool {name}'}; empty that one where it can be seen"
            )
        if begins and not chosen:
            raise SpoolError("the other processes could not be told, because its health was not changed")
        return bool(chosen)
