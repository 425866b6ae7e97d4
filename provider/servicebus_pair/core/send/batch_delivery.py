"""Delivers the batches of one send: attempts on the entity itself, as it is decided (SPEC section 4)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf
from typing import Final

from servicebus_pair.core.model.errors import InvalidMessageError, RejectedError, SendTimeoutError, ServiceError
from servicebus_pair.core.model.events import Route
from servicebus_pair.core.model.health_state import HealthState
from servicebus_pair.core.model.health_transitions import SendFailed, SendSucceeded
from servicebus_pair.core.protocol.batching import BatchPacker, BatchT
from servicebus_pair.core.sdk.error_mapping import triggers_failover
from servicebus_pair.core.sdk.send_link import SendSlot
from servicebus_pair.core.send.backlog_copies import LARGEST_UNCHECKED, UnencodedBatch
from servicebus_pair.core.send.delivery_state import (
    AttemptExecutor,
    DeliveryState,
    SendOperation,
    TrackedBatch,
    TrackedMessage,
)
from servicebus_pair.core.send.last_step import NO_HISTORY, LastStep, Part
from servicebus_pair.core.send.next_step import (
    MESSAGE_ERRORS,
    Attempt,
    AttemptHistory,
    Pause,
    Probe,
    Spool,
    attempt_timeout,
    is_overdue,
    next_step,
    remaining_interval,
)
from servicebus_pair.core.send.pair_context import lease
from servicebus_pair.core.send.sender_context import SenderContext
from servicebus_pair.core.send.timeouts import Deadline

# Seconds. The link to the backlog is opened while a late attempt is still running: by its end, it is open.
_MIN_PREPARE_DELAY: Final = 0.3
_LINK_OPENING: Final = 3.0


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
        self._operation = operation
        self._deadline = deadline
        self._executor = AttemptExecutor(
            sender.entity,
            state,
            registry=context.registry,
            clock=context.clock,
            unspooled_from=context.unspooled_from,
            hold_lease=None if context.order is None else context.order.lease_holder(sender.entity),
        )

    async def open_link(self) -> None:
        """Open the link to the entity for its size limits, unless the primary cannot be reached now."""
        if self._is_failed_over():
            return  # a hanging ping may hold the link
        self._deadline.remaining()
        timer = _AttemptTimer(self._clock.now())
        try:
            await self._link.open_in_slot(self._slot(NO_HISTORY, timer, sends=False))
        except ServiceError as error:
            if self._is_final(error):
                raise
            if not self._policy.spools:
                self._deadline.remaining(last=error)
            if triggers_failover(error, self._context.options):
                self._record_failure(error, timer.began)
        finally:
            timer.end()

    def new_batch(self) -> TrackedBatch | UnencodedBatch:
        """Return an empty batch, encoded only if it is likely to go to the primary."""
        return UnencodedBatch() if self._is_failed_over() else TrackedBatch(self._link.new_batch())

    async def deliver(self, batch: TrackedBatch | UnencodedBatch) -> None:
        """Deliver the messages of a batch, in parts where that is necessary."""
        parts = deque([Part(batch.messages, batch if isinstance(batch, TrackedBatch) else None)])
        order = self._context.order
        if order is not None:
            try:
                timeout = self._deadline.remaining()
                await order.enter_send(self._entity, timeout=timeout, unspools=self._policy.unspools)
            except TimeoutError as error:
                raise self._deadline.timeout_error(last=None) from error
        try:
            while parts:
                part = parts.popleft()
                try:
                    while (instead := await self._take_step(part)) is None:
                        pass
                except SendTimeoutError:
                    if not self._policy.spools:
                        raise
                    instead = await self._last_step.execute(part, Spool())
                parts.extendleft(reversed(instead))
        finally:
            if order is not None:
                order.leave_send(self._entity)

    async def _take_step(self, part: Part) -> list[Part] | None:
        """Take the next step of a part; return the parts that take its place, or ``None`` when it goes on itself."""
        order = self._context.order
        if order is None:
            health = self._registry.current(self._entity)
        else:
            health = await lease(self._context, self._entity, self._deadline, last=part.history.last_error)
            part.history = part.history.in_epoch(health.epoch)
            if is_overdue(part.history, health, now=self._clock.now(), interval=self._policy.interval):
                health = await self._last_step.fail_over(part, health)
        now = self._clock.now()
        step = next_step(
            part.history,
            health,
            now=now,
            messages=len(part.messages),
            policy=self._policy,
            deadline=self._deadline.at,
            backlog_is_down=self._policy.spools and self._context.backlog_health.is_down,
        )
        match step:
            case Attempt():
                return self._encoded(part) if part.batch is None else await self._attempt(part, part.batch, now)
            case Pause(seconds):
                await self._registry.wait_for_change(self._entity, timeout=seconds)
                part.history = part.history.paused()
                return None
            case Probe():
                part.history = await self._probe(part.history)
                return None
            case _:
                return await self._last_step.execute(part, step)

    @property
    def _last_step(self) -> LastStep:
        return LastStep(self._sender, self._executor, deadline=self._deadline)

    async def _attempt(self, part: Part, batch: TrackedBatch, now: float) -> list[Part] | None:
        """Attempt to send a part; return what takes its place, or ``None`` when it goes on itself."""
        if max(batch.encoded.sizes) > LARGEST_UNCHECKED:
            self._sender.backlog.check_sizes(batch.encoded)
        timer = _AttemptTimer(now)
        slot = self._slot(part.history, timer)
        try:
            sent = await self._executor.attempt(batch, self._operation, slot, route=Route.PRIMARY)
        except ServiceError as error:
            part.history = self._failed(part.history, error, timer)
            return self._encoded(part) if self._is_refused_mixture(part) else None
        finally:
            timer.end()
        ended = self._clock.now()
        if sent:
            if self._registry.current(self._entity).state is HealthState.SUSPECT:
                self._registry.apply(self._entity, SendSucceeded())
            self._context.accepted_at[self._sender.key] = ended
            return []
        if ended - now >= self._sender.longest_wait:
            # The link was busy with other sends all the time: the clock of this send goes on.
            part.history = part.history.waited(since=now)
        return None

    async def _probe(self, history: AttemptHistory) -> AttemptHistory:
        """Find out whether the entity takes anything else than a message that it rejected."""
        accepted_at, key = self._context.accepted_at, self._sender.key
        if accepted_at.get(key, -inf) <= history.rejected_since:
            timeout = self._attempt_timeout(history, self._clock.now())
            failure = await self._context.prober.probe(self._entity, timeout=timeout)
            if failure is not None:
                if isinstance(history.error, RejectedError):
                    self._record_failure(failure, history.rejected_since)
                return history.probed(works_at=None)
            accepted_at[key] = self._clock.now()
        return history.probed(works_at=accepted_at[key])

    def _encoded(self, part: Part) -> list[Part]:
        """Pack messages for the primary, in their order within each session."""
        packer = BatchPacker(
            lambda: TrackedBatch(self._link.new_batch()), key=lambda tracked: self._link.batch_key(tracked.message)
        )
        full = [batch for each in part.messages if (batch := self.pack(packer, each)) is not None]
        return [Part(batch.messages, batch, part.history) for batch in (*full, *packer.flush())]

    def pack(self, packer: BatchPacker[BatchT], tracked: TrackedMessage) -> BatchT | None:
        """Pack a message; return a batch that is ready now. :raises ServiceError: as :meth:`refuse`."""
        try:
            return packer.add(tracked)
        except Exception as error:  # noqa: BLE001 - see refuse
            self.refuse(tracked, error)
            return None

    def refuse(self, tracked: TrackedMessage, error: Exception) -> None:
        """Refuse a message that can never be sent, if it comes from the spool: it holds up nothing behind it.

        :raises ServiceError: it does not come from the spool; its sender is told at once.
        """
        if not self._policy.unspools:
            raise error
        # What is read from a file need not be of the types that a message has.
        verdict = error if isinstance(error, ServiceError) else InvalidMessageError(f"not a message: {error!r}")
        self._executor.state.refuse(tracked, verdict)

    def _is_refused_mixture(self, part: Part) -> bool:
        """Return whether the entity refused a batch for mixing sessions; from now on they are kept apart."""
        error = part.history.error
        mixed = error is not None and self._link.refuses_mixture(error, [each.message for each in part.messages])
        if mixed:
            part.history = part.history.part()
        return mixed

    def _slot(self, history: AttemptHistory, timer: _AttemptTimer, *, sends: bool = True) -> SendSlot:
        """Return a slot that is given up once the entity failed over, and that ends with the failover interval.

        :param sends: a lease is needed, which opening a link does not.
        """

        def still_wanted() -> bool:
            if sends and self._policy.ordered and self._registry.lease_seconds_left(self._entity) <= 0:
                return False
            return not self._is_failed_over()

        def seconds() -> float | None:
            if not still_wanted():
                return None
            now = self._clock.now()
            timeout = self._attempt_timeout(history, now)
            timer.start(now, timeout, attached=self._link.attached, prepare=self._sender.backlog.prepare)
            return timeout

        wait_seconds = min(self._deadline.at - timer.began, self._sender.longest_wait)
        return SendSlot(attempt_timeout=seconds, still_wanted=still_wanted, wait_seconds=wait_seconds)

    def _attempt_timeout(self, history: AttemptHistory, now: float) -> float:
        """Return the seconds that an attempt may take that starts now; it ends with the failover interval.

        :raises SendTimeoutError: the deadline has passed.
        """
        left = remaining_interval(
            self._registry.current(self._entity),
            interval=self._policy.interval,
            now=now,
            failing_since=history.failing_since,
        )
        allowed = self._deadline.at - now
        if allowed <= 0:
            raise self._deadline.timeout_error(last=history.last_error)
        return min(attempt_timeout(left, longest=self._sender.longest_attempt), allowed)

    def _failed(self, history: AttemptHistory, error: ServiceError, timer: _AttemptTimer) -> AttemptHistory:
        is_final = self._is_final(error) and not (self._policy.unspools and isinstance(error, MESSAGE_ERRORS))
        after = history.failed(error, began=timer.began, was_attached=timer.was_attached, is_final=is_final)
        if is_final:
            return after
        if after.counts:
            self._record_failure(error, after.failing_since)
        if not self._is_failed_over():
            self._sender.backlog.prepare()
        return after

    def _record_failure(self, error: ServiceError, since: float | None) -> None:
        began = self._clock.now() if since is None else since
        self._registry.apply(self._entity, SendFailed(str(error), began))

    def _is_failed_over(self) -> bool:
        """Return whether the entity is failed over, as far as this process knows."""
        health = self._registry.current(self._entity)
        return health.state is not HealthState.HEALTHY and health.failed_over

    def _is_final(self, error: ServiceError) -> bool:
        return not (error.retriable or triggers_failover(error, self._context.options))


def prepare_delay(timeout: float) -> float:
    """Return after how many seconds of an attempt with this timeout the link to the backlog is opened."""
    return max(_MIN_PREPARE_DELAY, timeout - _LINK_OPENING)


class _AttemptTimer:
    """When an attempt began, once the link was free; and the timer that opens the link to the backlog if it is slow."""

    def __init__(self, now: float) -> None:
        self.began = now
        self.was_attached = False
        self._prepare: asyncio.TimerHandle | None = None

    def start(self, now: float, timeout: float, *, attached: bool, prepare: Callable[[], None]) -> None:
        """Start the attempt; ``attached`` says whether the link had worked before."""
        self.began, self.was_attached = now, attached
        self._prepare = asyncio.get_running_loop().call_later(prepare_delay(timeout), prepare)

    def end(self) -> None:
        """End the attempt, whatever its outcome."""
        if self._prepare is not None:
            self._prepare.cancel()
