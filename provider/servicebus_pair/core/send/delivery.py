"""One send from its first message to its end: batching, attempts on the primary, diversion (SPEC section 4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeAlias

from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.model.errors import (
    RefusedError,
    SendCancelledError,
    SendError,
    ServerBusyError,
    ServiceError,
    UnreachableError,
)
from servicebus_pair.core.model.events import MessagesAccepted, Route
from servicebus_pair.core.model.health_state import SendFailed, SendSucceeded
from servicebus_pair.core.model.results import SendResult
from servicebus_pair.core.protocol.batching import BatchPacker, partition_key
from servicebus_pair.core.sdk._private.batch_encoding import EncodedBatch
from servicebus_pair.core.sdk.error_mapping import triggers_failover
from servicebus_pair.core.sdk.send_link import SendLink, SendSlot, noop
from servicebus_pair.core.send.backlog_copies import UnencodedBatch
from servicebus_pair.core.send.backlog_sender import BacklogSender
from servicebus_pair.core.send.delivery_state import DeliveryState
from servicebus_pair.core.send.input_messages import InputMessages
from servicebus_pair.core.send.pair_context import DEFAULT_BATCH_LIMIT, PairContext
from servicebus_pair.core.send.timeouts import (
    INITIAL_RETRY_DELAY,
    Deadline,
    attempt_timeout,
    next_retry_delay,
    prepare_delay,
    remaining_interval,
)

__all__ = ["Delivery", "SendOperation"]

_log = logging.getLogger(__name__)
_Batch: TypeAlias = EncodedBatch | UnencodedBatch

SendOperation: TypeAlias = Callable[[EncodedBatch, SendSlot], Awaitable[bool]]
"""Sends or schedules a batch on the primary; returns False when the slot was given up. Raises ServiceError."""


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
        timeout: float | None,
    ) -> None:
        self._entity = entity
        self._options = context.options
        self._registry = context.registry
        self._order = context.order
        self._clock = context.clock
        self._link = link
        self._backlog = backlog
        self._operation = operation
        self._deadline = Deadline(context.clock, timeout=timeout)
        self._state = DeliveryState()
        self._packer: BatchPacker[_Batch] = BatchPacker(self._new_batch, key=link.batch_key)
        self._unpacked: list[AmqpAnnotatedMessage] = []

    async def run(self, messages: InputMessages) -> SendResult:
        """Deliver all of ``messages``.

        :raises SendError: with the messages that are accepted, unsent and in doubt.
        :raises CancelledError: its cause carries the same, see ``find_send_error``.
        """
        try:
            await self._deliver_all(messages)
        except (asyncio.CancelledError, Exception) as error:
            pending = self._state.pending.values()
            packed = [message for batch in self._packer.open_batches() for message in batch.messages]
            send_error = self._send_error(error, [*pending, *packed, *self._unpacked, *messages.remaining()])
            if isinstance(error, asyncio.CancelledError):
                # asyncio.timeout recognizes its own cancellation only by exactly this class.
                raise asyncio.CancelledError(*error.args) from send_error
            raise send_error from error
        return self._state.result()

    async def _deliver_all(self, messages: InputMessages) -> None:
        for message in messages.available():
            await self._pack(message)
        if messages.is_stream:
            async for message in messages.stream():
                await self._pack(message)
        for batch in self._packer.flush():
            await self._deliver(batch)

    async def _pack(self, message: AmqpAnnotatedMessage) -> None:
        # Packing may fail; until it succeeds the message is in no batch and would be missing from ``unsent``.
        self._unpacked.append(message)
        if self._packer.is_empty and not self._link.is_open:
            await self._open_link()
        full = self._packer.add(message)
        self._unpacked.clear()
        if full is not None:
            await self._deliver(full)

    def _send_error(self, error: BaseException, unsent: list[AmqpAnnotatedMessage]) -> SendError:
        result, in_doubt = self._state.result(), self._state.in_doubt
        summary = (
            f"sending to {self._entity} ended with {result.primary} messages on the primary, {result.diverted} in "
            f"the backlog, {len(unsent)} unsent, {len(in_doubt)} of them in doubt"
        )
        _log.warning("%s: %s", summary, type(error).__name__)
        kind, cause = SendError, error
        match error:
            case SendError():
                kind, cause = type(error), error.cause
            case asyncio.CancelledError():
                kind = SendCancelledError
        reason = str(error) or type(error).__name__
        return kind(f"{summary}: {reason}", cause=cause, result=result, unsent=unsent, in_doubt=in_doubt)

    async def _open_link(self) -> None:
        """Open the link for its size limits, unless the primary cannot be reached now."""
        if self._failed_over:
            return  # a hanging ping may hold the link
        attempts = _AttemptState()
        try:
            await self._link.open_in_slot(self._slot(attempts))
        except ServiceError as error:
            self._raise_if_final(error)
            self._deadline.remaining(last=error)
            if triggers_failover(error, self._options):
                self._record_failure(error, attempts)
        finally:
            attempts.end()

    @property
    def _failed_over(self) -> bool:
        return self._registry.current(self._entity).failed_over

    def _new_batch(self) -> _Batch:
        return UnencodedBatch() if self._failed_over else self._new_encoded_batch()

    def _new_encoded_batch(self) -> EncodedBatch:
        link = self._link
        return EncodedBatch(link.max_batch_bytes or DEFAULT_BATCH_LIMIT, max_message_bytes=link.max_message_bytes)

    async def _deliver(self, batch: _Batch) -> None:
        """Send a batch to the primary or, once the entity is failed over, to the backlog."""
        self._state.start_batch(batch.messages)
        if self._order is None:
            await self._deliver_pending(batch)
            return
        try:
            await self._order.enter_send(self._entity, timeout=self._deadline.remaining())
        except TimeoutError as error:
            raise self._deadline.timeout_error(last=None) from error
        try:
            await self._deliver_pending(batch)
        finally:
            self._order.leave_send(self._entity)

    async def _deliver_pending(self, pending: _Batch) -> None:
        failure: ServiceError | None = None
        first = 0
        for batch in self._encoded_batches(pending):
            self._backlog.check_sizes(batch)
            attempts = _AttemptState()
            if not await self._send_split_if_mixed(batch, range(first, first + len(batch)), attempts):
                failure = attempts.last_error
                break
            first += len(batch)
        if self._state.pending:
            await self._backlog.send(self._state, because=failure, deadline=self._deadline)

    def _encoded_batches(self, batch: _Batch) -> Iterator[EncodedBatch]:
        """Yield ``batch``, or its parts if it was collected for the backlog and the primary has recovered."""
        if isinstance(batch, EncodedBatch):
            yield batch
            return
        # All messages have one key, so their order is kept.
        packer = BatchPacker(self._new_encoded_batch, key=partition_key)
        for message in batch.messages:
            if self._failed_over:
                break
            full = packer.add(message)
            if full is not None:
                yield full
        yield from packer.flush()

    async def _send_split_if_mixed(self, batch: EncodedBatch, numbers: Sequence[int], attempts: _AttemptState) -> bool:
        """Send a batch to the primary, split by session if it is refused for its mixture; False once failed over."""
        try:
            return await self._send_to_primary(batch, numbers, attempts)
        except RefusedError:
            parts = self._link.split_if_mixed(batch, numbers)
            if not parts:
                raise
        for part_numbers, part in parts:
            if not await self._send_to_primary(part, part_numbers, attempts):
                return False
        return True

    async def _send_to_primary(self, batch: EncodedBatch, numbers: Sequence[int], attempts: _AttemptState) -> bool:
        """Retry a batch while the entity is suspect; return False once it is failed over."""
        while not self._failed_over:
            try:
                sent = await self._attempt(batch, numbers, attempts)
            except ServiceError as error:
                attempts.last_error = error
                self._raise_if_final(error)
                await self._handle_failure(error, attempts)
            else:
                if sent:
                    self._handle_success(batch, numbers)
                    return True
        return False

    async def _attempt(self, batch: EncodedBatch, numbers: Sequence[int], attempts: _AttemptState) -> bool:
        """Send once; return False when the entity failed over while the batch waited for the link."""
        in_doubt_before = self._state.in_doubt_numbers
        slot = self._slot(attempts, on_start=lambda: self._state.mark_in_doubt(numbers))
        try:
            return await self._operation(batch, slot)
        except ServiceError as error:
            if not error.may_be_stored:
                self._state.restore_in_doubt(in_doubt_before)
            raise
        finally:
            attempts.end()

    def _slot(self, attempts: _AttemptState, *, on_start: Callable[[], None] = noop) -> SendSlot:
        """Return a slot that is given up once the entity failed over, and that ends with the failover interval."""

        def seconds() -> float | None:
            if self._failed_over:
                return None
            attempts.start(self._clock.now(), attached=self._link.attached)
            remaining = self._deadline.remaining(last=attempts.last_error)
            timeout = min(attempt_timeout(self._remaining_interval(attempts)), remaining)
            attempts.prepare_timer = asyncio.get_running_loop().call_later(
                prepare_delay(timeout), self._backlog.prepare
            )
            return timeout

        return SendSlot(
            attempt_timeout=seconds,
            still_wanted=lambda: not self._failed_over,
            on_start=on_start,
            wait_seconds=self._deadline.remaining(last=attempts.last_error),
        )

    async def _handle_failure(self, error: ServiceError, attempts: _AttemptState) -> None:
        """Count a retriable failure against the entity's health, and wait before the next attempt."""
        remaining = self._deadline.remaining(last=error)
        if isinstance(error, ServerBusyError):
            attempts.failing_since = None
            delay = self._options.server_busy_delay.total_seconds()
            if delay > remaining:
                raise self._deadline.timeout_error(last=error)
            await self._registry.wait_for_change(self._entity, timeout=delay)
            return
        if isinstance(error, UnreachableError) and attempts.allow_one_retry():
            self._backlog.prepare()
            return
        self._record_failure(error, attempts)
        if not self._failed_over:
            self._backlog.prepare()
            delay = min(attempts.retry_delay, self._remaining_interval(attempts), remaining)
            await self._registry.wait_for_change(self._entity, timeout=delay)
            attempts.retry_delay = next_retry_delay(attempts.retry_delay)

    def _record_failure(self, error: ServiceError, attempts: _AttemptState) -> None:
        since = self._clock.now() if attempts.failing_since is None else attempts.failing_since
        self._registry.apply(self._entity, SendFailed(str(error), since))

    def _handle_success(self, batch: EncodedBatch, numbers: Sequence[int]) -> None:
        self._registry.apply(self._entity, SendSucceeded())
        self._state.mark_accepted(numbers, route=Route.PRIMARY, queue=None, refs=batch.refs)
        at = self._clock.now()
        self._registry.emit(MessagesAccepted(self._entity, Route.PRIMARY, None, tuple(batch.refs), at))

    def _raise_if_final(self, error: ServiceError) -> None:
        if not (error.retriable or triggers_failover(error, self._options)):
            raise error

    def _remaining_interval(self, attempts: _AttemptState) -> float:
        return remaining_interval(
            self._registry.current(self._entity),
            interval=self._options.failover_interval.total_seconds(),
            now=self._clock.now(),
            failing_since=attempts.failing_since,
        )


class _AttemptState:
    """The attempts to send one batch to the primary."""

    def __init__(self) -> None:
        self.last_error: ServiceError | None = None
        self.retry_delay = INITIAL_RETRY_DELAY
        # Start of the first failed attempt, including one whose connection loss was not counted.
        self.failing_since: float | None = None
        self.prepare_timer: asyncio.TimerHandle | None = None
        self._was_attached = False
        self._retried = False

    def start(self, now: float, *, attached: bool) -> None:
        """Start an attempt at ``now``; ``attached`` says whether the link had worked before."""
        self.failing_since = now if self.failing_since is None else self.failing_since
        self._was_attached = attached

    def end(self) -> None:
        """End the attempt, whatever its outcome."""
        if self.prepare_timer is not None:
            self.prepare_timer.cancel()

    def allow_one_retry(self) -> bool:
        """Return True for the first loss of a working connection: it is retried at once and not counted."""
        if self._retried or not self._was_attached:
            return False
        self._retried = True
        return True
