"""One send from its first message to its end: packs batches and executes what is decided (SPEC section 4)."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from math import inf

from servicebus_pair.core.model.errors import (
    NoBacklogQueueError,
    SendCancelledError,
    SendError,
    SendTimeoutError,
    ServiceError,
    SpoolError,
)
from servicebus_pair.core.model.events import Route
from servicebus_pair.core.model.health_transitions import SendFailed, SendSucceeded
from servicebus_pair.core.model.results import SendResult
from servicebus_pair.core.protocol.amqp_message import AmqpMessage
from servicebus_pair.core.protocol.batching import BatchPacker
from servicebus_pair.core.sdk.error_mapping import triggers_failover
from servicebus_pair.core.sdk.message_batch import EncodedBatch
from servicebus_pair.core.sdk.messages import to_application
from servicebus_pair.core.sdk.send_link import SendLink, SendSlot
from servicebus_pair.core.send.attempt import AttemptExecutor, SendOperation, TrackedBatch
from servicebus_pair.core.send.backlog_copies import UnencodedBatch
from servicebus_pair.core.send.backlog_sender import BacklogSender
from servicebus_pair.core.send.delivery_state import DeliveryState, MessageStatus, TrackedMessage
from servicebus_pair.core.send.input_messages import InputMessages
from servicebus_pair.core.send.message_limits import check_message
from servicebus_pair.core.send.next_step import (
    AttemptHistory,
    Divert,
    Fail,
    Pause,
    Probe,
    Refuse,
    SendPolicy,
    Split,
    Spool,
    TimeOut,
    next_step,
    remaining_interval,
)
from servicebus_pair.core.send.pair_context import DEFAULT_BATCH_LIMIT, PairContext, lease
from servicebus_pair.core.send.timeouts import Deadline, attempt_timeout, prepare_delay

__all__ = ["Delivery"]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Part:
    """Messages that are sent together, and what happened to them so far."""

    messages: list[TrackedMessage]
    batch: TrackedBatch | None = None
    history: AttemptHistory = field(default_factory=AttemptHistory)


class Delivery:
    """The delivery of one send; used once.

    :param link: to the entity on the primary.
    :param backlog: diverts what the primary does not accept.
    :param operation: sends or schedules a batch over ``link``.
    :param timeout: seconds for the whole send; ``None`` for no limit.
    """

    def __init__(
        self,
        entity: str,
        context: PairContext,
        *,
        link: SendLink,
        backlog: BacklogSender,
        operation: SendOperation,
        state: DeliveryState,
        timeout: float | None,
    ) -> None:
        self._entity = entity
        self._context = context
        self._options = context.options
        self._registry = context.registry
        self._clock = context.clock
        self._link = link
        self._backlog = backlog
        self._operation = operation
        self._deadline = Deadline(context.clock, timeout=timeout)
        self._policy = SendPolicy(
            interval=self._options.failover_interval.total_seconds(),
            busy_delay=self._options.server_busy_delay.total_seconds(),
            deadline=self._deadline.at,
            ordered=context.order is not None,
            spools=context.spool is not None,
        )
        self._state = state
        self._executor = AttemptExecutor(
            entity,
            state,
            emit=self._registry.emit,
            clock=self._clock,
            unspools=context.unspools,
            hold_lease=None if context.order is None else context.order.lease_holder(entity),
        )
        self._packer: BatchPacker[TrackedBatch | UnencodedBatch] = BatchPacker(
            self._new_batch, key=lambda tracked: link.batch_key(tracked.message)
        )

    async def run(self, messages: InputMessages) -> SendResult:
        """Deliver all of ``messages``.

        :raises SendError: with the messages that are accepted, unsent, refused and in doubt.
        :raises CancelledError: its cause carries the same, see ``find_send_error``.
        """
        try:
            await self._deliver_all(messages)
            self._raise_if_refused()
        except (asyncio.CancelledError, Exception) as error:
            send_error = self._send_error(error, messages)
            if isinstance(error, asyncio.CancelledError):
                # asyncio.timeout recognizes its own cancellation only by exactly this class.
                raise asyncio.CancelledError(*error.args) from send_error
            raise send_error from error
        return self._state.result()

    async def _deliver_all(self, messages: InputMessages) -> None:
        for message in messages.available():
            await self._pack(message)
        if messages.is_stream:
            stream = messages.stream()
            while (streamed := await self._next(stream)) is not None:
                await self._pack(streamed)
        for batch in self._packer.flush():
            await self._deliver(batch)

    async def _next(self, stream: AsyncIterator[AmqpMessage]) -> AmqpMessage | None:
        """Return the next message of a stream; ``None`` at its end.

        :raises SendTimeoutError: the stream took longer than the caller allows for the send.
        """
        remaining = self._deadline.remaining()
        limit = asyncio.timeout(None if remaining == inf else remaining)
        try:
            async with limit:
                return await anext(stream, None)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise self._deadline.timeout_error(last=None) from error

    async def _pack(self, message: AmqpMessage) -> None:
        tracked = self._state.take(message)
        check_message(message)
        if self._packer.is_empty and not self._link.is_open:
            await self._open_link()
        full = self._packer.add(tracked)
        if full is not None:
            await self._deliver(full)

    def _raise_if_refused(self) -> None:
        for refused in self._state.refused:
            if refused.verdict is not None:
                raise refused.verdict

    def _send_error(self, error: BaseException, messages: InputMessages) -> SendError:
        state = self._state
        result, in_doubt, refused = state.result(), state.in_doubt, state.refused
        unsent = [*map(to_application, state.unsent), *messages.remaining()]
        summary = (
            f"sending to {self._entity} ended with {result.primary} messages on the primary, {result.diverted} in "
            f"the backlog, {len(unsent)} unsent, {len(in_doubt)} of them in doubt"
            + (f" and {len(refused)} refused" if refused else "")
        )
        _log.warning("%s: %s", summary, type(error).__name__)
        kind, cause = SendError, error
        match error:
            case SendError():
                kind, cause = type(error), error.cause
            case asyncio.CancelledError():
                kind = SendCancelledError
        reason = str(error) or type(error).__name__
        account = kind(
            f"{summary}: {reason}", cause=cause, result=result, unsent=unsent, in_doubt=[*map(to_application, in_doubt)]
        )
        account.refused = tuple(to_application(each.message) for each in refused)
        account.sequence_numbers = tuple(state.sequence_numbers)
        return account

    async def _open_link(self) -> None:
        """Open the link for its size limits, unless the primary cannot be reached now."""
        if self._failed_over:
            return  # a hanging ping may hold the link
        timer = _AttemptTimer(self._clock.now())
        try:
            await self._link.open_in_slot(self._slot(AttemptHistory(), timer, sends=False))
        except ServiceError as error:
            if self._is_final(error):
                raise
            if not self._policy.spools:
                self._deadline.remaining(last=error)
            if triggers_failover(error, self._options):
                self._record_failure(error, timer.began)
        finally:
            timer.end()

    @property
    def _failed_over(self) -> bool:
        return self._registry.current(self._entity).failed_over

    def _new_batch(self) -> TrackedBatch | UnencodedBatch:
        return UnencodedBatch() if self._failed_over else self._new_tracked_batch()

    def _new_tracked_batch(self) -> TrackedBatch:
        link = self._link
        limit = link.max_batch_bytes or DEFAULT_BATCH_LIMIT
        return TrackedBatch(EncodedBatch(limit, max_message_bytes=link.max_message_bytes))

    async def _deliver(self, batch: TrackedBatch | UnencodedBatch) -> None:
        """Deliver the messages of a batch, in parts where that is necessary."""
        parts = deque([_Part(batch.messages, batch if isinstance(batch, TrackedBatch) else None)])
        order = self._context.order
        if order is None:
            await self._deliver_parts(parts)
            return
        try:
            await order.enter_send(self._entity, timeout=self._deadline.remaining())
        except TimeoutError as error:
            raise self._deadline.timeout_error(last=None) from error
        try:
            await self._deliver_parts(parts)
        finally:
            order.leave_send(self._entity)

    async def _deliver_parts(self, parts: deque[_Part]) -> None:
        while parts:
            parts.extendleft(reversed(await self._deliver_part(parts.popleft())))

    async def _deliver_part(self, part: _Part) -> list[_Part]:
        """Deliver a part; return the parts that are to be delivered in its place, if any."""
        try:
            while (parts := await self._take_step(part)) is None:
                pass
        except SendTimeoutError:
            if not self._policy.spools:
                raise
            return await self._finish(part, Spool())
        return parts

    async def _take_step(self, part: _Part) -> list[_Part] | None:
        """Take the next step of a part; return the parts that take its place, or ``None`` when it goes on itself."""
        step = next_step(
            part.history,
            await lease(self._context, self._entity, self._deadline, last=part.history.last_error),
            now=self._clock.now(),
            messages=len(part.messages),
            policy=self._policy,
            backlog_is_down=self._context.backlog_health.is_down,
        )
        if isinstance(step, Split | Refuse | Divert | Spool | Fail | TimeOut):
            return await self._finish(part, step)
        if isinstance(step, Pause | Probe):
            await self._wait(part, step)
            return None
        if part.batch is None:
            return self._encoded(part)
        if await self._attempt(part):
            return []
        return self._encoded(part) if self._is_refused_mixture(part) else None

    async def _wait(self, part: _Part, step: Pause | Probe) -> None:
        if isinstance(step, Probe):
            await self._probe(part)
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
                await self._spool(part)
                return []
            case TimeOut(error):
                raise self._deadline.timeout_error(last=error)
            case Fail(error):
                raise error

    def _encoded(self, part: _Part) -> list[_Part]:
        """Pack messages for the primary, in their order within each session."""
        packer = BatchPacker(self._new_tracked_batch, key=lambda tracked: self._link.batch_key(tracked.message))
        full = [batch for each in part.messages if (batch := packer.add(each)) is not None]
        return [_Part(batch.messages, batch, part.history) for batch in (*full, *packer.flush())]

    async def _attempt(self, part: _Part) -> bool:
        """Attempt to send an encoded part; on a failure, add it to the part's history and the entity's health."""
        assert part.batch is not None  # noqa: S101 - for the type checker
        self._backlog.check_sizes(part.batch.encoded)
        waiting_since = self._clock.now()
        timer = _AttemptTimer(waiting_since)
        try:
            sent = await self._executor.attempt(
                part.batch, self._operation, self._slot(part.history, timer), route=Route.PRIMARY
            )
        except ServiceError as error:
            part.history = part.history.failed(
                error, began=timer.began, was_attached=timer.was_attached, is_final=self._is_final(error)
            )
            if not part.history.is_final:
                self._after_failure(part, error)
            return False
        finally:
            timer.end()
        if sent:
            self._registry.apply(self._entity, SendSucceeded())
            self._context.accepted_at[self._entity.casefold()] = self._clock.now()
        elif self._clock.now() - waiting_since >= self._longest_wait:
            # The link was busy with other sends all the time: the clock of this send goes on.
            part.history = part.history.waited(since=waiting_since)
        return sent

    def _slot(self, history: AttemptHistory, timer: _AttemptTimer, *, sends: bool = True) -> SendSlot:
        """Return a slot that is given up once the entity failed over, and that ends with the failover interval.

        :param sends: a lease is needed, which opening a link does not.
        """

        def still_wanted() -> bool:
            allowed = not sends or self._registry.lease_seconds_left(self._entity) > 0
            return allowed and not self._failed_over

        def seconds() -> float | None:
            if not still_wanted():
                return None
            timeout = self._attempt_timeout(history)
            timer.start(
                self._clock.now(),
                attached=self._link.attached,
                prepare_after=prepare_delay(timeout),
                prepare=self._backlog.prepare,
            )
            return timeout

        return SendSlot(
            attempt_timeout=seconds,
            still_wanted=still_wanted,
            wait_seconds=min(self._deadline.remaining(last=history.last_error), self._longest_wait),
        )

    def _attempt_timeout(self, history: AttemptHistory) -> float:
        """Return the seconds that an attempt may take that starts now; it ends with the failover interval."""
        left = remaining_interval(
            self._registry.current(self._entity),
            interval=self._policy.interval,
            now=self._clock.now(),
            failing_since=history.failing_since,
        )
        longest = self._options.attempt_timeout.total_seconds()
        return min(attempt_timeout(left, longest=longest), self._deadline.remaining(last=history.last_error))

    @property
    def _longest_wait(self) -> float:
        """How long to wait for the link while other sends use it."""
        return max(self._policy.interval, self._options.attempt_timeout.total_seconds())

    def _after_failure(self, part: _Part, error: ServiceError) -> None:
        if part.history.counts:
            self._record_failure(error, part.history.failing_since)
        if not self._failed_over:
            self._backlog.prepare()

    def _record_failure(self, error: ServiceError, since: float | None) -> None:
        began = self._clock.now() if since is None else since
        self._registry.apply(self._entity, SendFailed(str(error), began))

    def _is_refused_mixture(self, part: _Part) -> bool:
        """Return whether the entity refused a batch for mixing sessions; from now on they are kept apart."""
        error = part.history.error
        mixed = error is not None and self._link.refuses_mixture(error, [each.message for each in part.messages])
        if mixed:
            part.history = part.history.part()
        return mixed

    async def _probe(self, part: _Part) -> None:
        """Find out whether the entity takes anything else than a message that it rejected."""
        since = part.history.rejected_since or 0.0
        key = self._entity.casefold()
        failure = None
        if self._context.accepted_at.get(key, 0.0) <= since:
            failure = await self._context.prober.probe(self._entity, timeout=self._attempt_timeout(part.history))
            if failure is None:
                self._context.accepted_at[key] = self._clock.now()
        part.history = part.history.probed(works_at=self._context.accepted_at[key] if failure is None else None)
        if failure is not None:
            self._record_failure(failure, part.history.rejected_since)

    def _refuse(self, part: _Part) -> None:
        [message] = part.messages
        verdict = part.history.last_error
        assert verdict is not None  # noqa: S101 - for the type checker
        _log.warning("entity=%s refuses one message and takes others: %s", self._entity, verdict)
        self._state.refuse(message, verdict)

    async def _divert(self, part: _Part) -> list[_Part]:
        """Send a part to the backlog; return what is left because the entity failed back meanwhile."""
        try:
            left = await self._backlog.send(
                part.messages, self._executor, because=part.history.last_error, deadline=self._deadline
            )
        except (NoBacklogQueueError, SendTimeoutError) as error:
            part.history = part.history.not_diverted(error)
            left = [each for each in part.messages if each.status is MessageStatus.QUEUED]
        return [_Part(left, None, part.history.part())] if left else []

    async def _spool(self, part: _Part) -> None:
        spool = self._context.spool
        assert spool is not None  # noqa: S101 - for the type checker
        self._backlog.try_again()
        try:
            await self._executor.spool(part.messages, spool)
        except SpoolError as error:
            reason = part.history.backlog_error or part.history.last_error
            raise NoBacklogQueueError(
                f"neither namespace takes messages for {self._entity} ({reason}), nor does the spool: {error}",
                cause=error if reason is None else reason,
                result=SendResult(),
                unsent=(),
            ) from error

    def _is_final(self, error: ServiceError) -> bool:
        return not (error.retriable or triggers_failover(error, self._options))


class _AttemptTimer:
    """When an attempt began, once the link was free; and the timer that opens the link to the backlog if it is slow."""

    def __init__(self, now: float) -> None:
        self.began = now
        self.was_attached = False
        self._prepare: asyncio.TimerHandle | None = None

    def start(self, now: float, *, attached: bool, prepare_after: float, prepare: Callable[[], None]) -> None:
        """Start the attempt; ``attached`` says whether the link had worked before."""
        self.began, self.was_attached = now, attached
        self._prepare = asyncio.get_running_loop().call_later(prepare_after, prepare)

    def end(self) -> None:
        """End the attempt, whatever its outcome."""
        if self._prepare is not None:
            self._prepare.cancel()
