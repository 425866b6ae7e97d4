"""The search of one divert for backlog queues that take its copies (SPEC section 4)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from servicebus_pair.core.model.errors import (
    InvalidMessageError,
    MessageTooLargeError,
    NoBacklogQueueError,
    RejectedError,
    ServerBusyError,
    ServiceError,
    TimedOutError,
    UnreachableError,
)
from servicebus_pair.core.model.events import QueuePulled, Route
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.model.results import SendResult
from servicebus_pair.core.protocol.amqp_message import AmqpMessage, check_message
from servicebus_pair.core.protocol.backlog_message import wrap
from servicebus_pair.core.protocol.batching import BatchPacker, partition_key
from servicebus_pair.core.sdk.message_batch import EncodedBatch
from servicebus_pair.core.sdk.send_link import SendSlot
from servicebus_pair.core.send.delivery_state import AttemptExecutor, TrackedBatch, TrackedMessage
from servicebus_pair.core.send.pair_context import PairContext, lease
from servicebus_pair.core.send.timeouts import BacklogSearchBudget, Deadline, search_timeout

_log = get_logger(__name__)
_MAX_SESSION_QUEUE_ATTEMPTS: Final = 3
# Seconds before the second and the third attempt to send a message that was rejected alone.
_REJECTION_PAUSES: Final = (0.25, 0.5)

_Copies: TypeAlias = dict[TrackedMessage, AmqpMessage]


class _FailedBackError(Exception):
    """The entity failed back, or sends to the spool: with session order, nothing may be diverted any more."""


def checked_copy(message: AmqpMessage, *, entity: str) -> AmqpMessage:
    """Return the copy for the backlog. :raises MessageTooLargeError: the service would reject it."""
    copied = wrap(message, entity=entity)
    try:
        check_message(copied)
    except InvalidMessageError as error:
        raise MessageTooLargeError(f"as a copy for the backlog, {error}") from error
    return copied


class Diversion:
    """Sends some messages of one entity to the backlog; used once.

    :param because: the failure on the primary that led here, if this send saw it.
    """

    def __init__(
        self,
        entity: str,
        context: PairContext,
        executor: AttemptExecutor,
        *,
        because: ServiceError | None,
        deadline: Deadline,
    ) -> None:
        self._entity = entity
        self._context = context
        self._selector = context.queue_selector
        self._executor = executor
        self._because = because
        self._deadline = deadline
        interval = context.options.failover_interval.total_seconds()
        self._budget = BacklogSearchBudget(
            context.clock,
            seconds=search_timeout(interval, unresponsive=self._selector.unresponsive),
            deadline=deadline,
            longest=context.options.attempt_timeout.total_seconds(),
        )
        # What a queue rejected although it works otherwise, and the queue.
        self._rejected: dict[TrackedMessage, tuple[RejectedError, str]] = {}

    async def send(
        self, messages: Sequence[TrackedMessage], *, preferred: str | None
    ) -> tuple[list[TrackedMessage], str | None]:
        """Send copies of ``messages``; return what is left after a failback, and the queue to keep.

        :param preferred: the backlog queue that the sender used before.
        """
        copies = self._copies(messages)
        order = self._context.order
        if order is None:
            queue = await self._to_any_queue(copies, preferred)
            await self._try_rejected_elsewhere(copies)
            return [], queue
        originals = {tracked: tracked.message for tracked in copies}
        left: list[TrackedMessage] = []
        for fixed, part in order.group_by_queue(self._entity, copies, originals).items():
            left += await self._to_fixed_queue(fixed, part)
        for tracked, (error, _) in self._rejected.items():
            self._refuse(tracked, error)
        return left, preferred

    def _copies(self, messages: Iterable[TrackedMessage]) -> _Copies:
        """Return the backlog copies; a message whose copy the service would reject is refused."""
        copies: _Copies = {}
        for tracked in messages:
            try:
                copies[tracked] = checked_copy(tracked.message, entity=self._entity)
            except (MessageTooLargeError, InvalidMessageError) as error:
                self._refuse(tracked, error)
        return copies

    async def _to_any_queue(self, copies: _Copies, queue: str | None) -> str | None:
        """Send the copies to ``queue``, or to others when it fails; return the last one used."""
        tried: set[str] = set()
        retried: set[str] = set()
        last: ServiceError | None = None
        while remaining := [tracked for tracked in copies if tracked not in self._rejected]:
            self._deadline.remaining(last=last)
            chosen = self._selector.select(queue, exclude=tried)
            if chosen is None or self._budget.exhausted:
                self._selector.unresponsive = self._budget.exhausted
                raise self._no_queue_error(last, len(remaining), tried=len(tried))
            queue = chosen
            tried.add(chosen)
            had_worked = self._context.secondary.send_link(chosen).attached
            try:
                await self._to_queue(chosen, copies, remaining)
            except (MessageTooLargeError, InvalidMessageError):
                raise
            except ServiceError as error:
                self._budget.fail_attempt()
                last = error
                if await self._keeps_queue(chosen, error, allow_retry=had_worked and chosen not in retried):
                    tried.discard(chosen)
                retried.add(chosen)
        return queue

    async def _to_fixed_queue(self, queue: str, copies: _Copies) -> list[TrackedMessage]:
        """Send copies to this queue only: with session order, each session has one backlog queue.

        :returns: what is left because the entity failed back meanwhile.
        """
        failures = 0
        while remaining := [tracked for tracked in copies if tracked not in self._rejected]:
            self._deadline.remaining(last=self._because)
            try:
                await self._to_queue(queue, copies, remaining)
            except _FailedBackError:
                return [tracked for tracked in remaining if tracked in copies]
            except (MessageTooLargeError, InvalidMessageError):
                raise
            except ServiceError as error:
                self._budget.fail_attempt()
                if await self._wait_if_busy(error):
                    continue
                failures += 1
                if failures == _MAX_SESSION_QUEUE_ATTEMPTS or self._budget.exhausted:
                    self._selector.unresponsive = self._budget.exhausted
                    raise self._no_queue_error(error, len(remaining), tried=1) from error
                _log.warning("backlog queue=%s of these sessions failed: %s", queue, error)
        return []

    async def _keeps_queue(self, queue: str, error: ServiceError, *, allow_retry: bool) -> bool:
        """Return whether a failed queue is tried again; else remove it for all senders.

        :param allow_retry: retry after the loss of a working connection: as on the primary, it is not counted once.
        """
        if await self._wait_if_busy(error) or (allow_retry and isinstance(error, UnreachableError)):
            return True
        if self._selector.remove(queue):
            _log.warning("backlog queue=%s leaves the rotation: %s", queue, error)
            self._context.registry.emit_best_effort(QueuePulled(queue, str(error), self._context.clock.now()))
        return False

    async def _wait_if_busy(self, error: ServiceError) -> bool:
        """Wait for ``server_busy_delay`` if the service is busy; return False for any other error."""
        if not isinstance(error, ServerBusyError):
            return False
        delay = self._context.options.server_busy_delay.total_seconds()
        if delay > self._deadline.remaining(last=error):
            raise self._deadline.timeout_error(last=error)
        await self._context.clock.sleep(delay)
        return True

    async def _to_queue(self, queue: str, copies: _Copies, messages: Iterable[TrackedMessage]) -> None:
        """Send ``copies`` to ``queue`` in batches; what was accepted leaves ``copies``.

        A rejected batch is split until the offender stands alone; it is set aside when the queue works otherwise.
        """
        self._budget.start_attempt()
        try:
            batches = deque(await self._pack(queue, copies, messages))
            while batches:
                batch = batches.popleft()
                try:
                    await self._send_batch(queue, batch, copies)
                except RejectedError as error:
                    match batch.messages:
                        case [_]:
                            await self._judge(queue, batch, copies, error)
                        case messages:
                            middle = len(messages) // 2
                            halves = messages[:middle], messages[middle:]
                            parts = [part for half in halves for part in await self._pack(queue, copies, half)]
                            batches.extendleft(reversed(parts))
                except MessageTooLargeError as error:
                    # Of the service, where the SDK does not tell the limit of the link: the message is alone.
                    if self._context.unspooled_from is None:
                        raise
                    for tracked in batch.messages:
                        self._refuse(tracked, error)
                        del copies[tracked]
        except MessageTooLargeError as error:
            raise MessageTooLargeError(f"as a copy for the backlog, {error}") from error

    async def _judge(self, queue: str, batch: TrackedBatch, copies: _Copies, error: RejectedError) -> None:
        """Try a rejected message twice more; then set it aside if the queue works otherwise.

        :raises ServiceError: the queue does not even take a link: the failure is the queue's.
        """
        for pause in _REJECTION_PAUSES:
            await self._context.clock.sleep(min(pause, self._deadline.remaining(last=error)))
            try:
                await self._send_batch(queue, batch, copies)
            except RejectedError as again:
                error = again
            else:
                return
        link = self._context.secondary.send_link(queue)
        await link.reopen(timeout=self._budget.call_timeout())
        [tracked] = batch.messages
        self._rejected[tracked] = error, queue

    async def _try_rejected_elsewhere(self, copies: _Copies) -> None:
        """Try what one queue rejected on another one; what that rejects too is refused to the caller."""
        for tracked, (error, queue) in list(self._rejected.items()):
            other = self._selector.select(None, exclude={queue})
            try:
                if other is not None:
                    for batch in await self._pack(other, copies, [tracked]):
                        await self._send_batch(other, batch, copies)
                    continue
            except ServiceError as failure:
                # The other queue may be in trouble of its own; the verdict of the first one stands.
                _log.info("backlog queue=%s does not take the message either: %s", other, failure)
            self._refuse(tracked, error)

    def _refuse(self, tracked: TrackedMessage, verdict: ServiceError) -> None:
        """Refuse a message to the caller.

        :raises ServiceError: the verdict, if the message comes from the spool, where it waits for the primary; with
            session order nothing goes there past the backlog, and the message would hold up its session for ever.
        """
        if self._context.unspooled_from is not None and self._context.order is None:
            raise verdict
        _log.warning("the backlog refuses one message of entity=%s: %s", self._entity, verdict)
        self._executor.state.refuse(tracked, verdict)

    def _slot(self, queue: str) -> SendSlot:
        """Return a slot that is given up when other sends found meanwhile that the queue does not answer."""
        selector = self._selector
        removed, unresponsive = selector.is_removed(queue), selector.unresponsive

        def seconds() -> float | None:
            if (selector.is_removed(queue) and not removed) or (selector.unresponsive and not unresponsive):
                return None
            # Time spent waiting for a busy link is not charged to the queue.
            self._budget.start_attempt()
            return self._budget.call_timeout()

        return SendSlot(attempt_timeout=seconds, wait_seconds=self._deadline.remaining())

    def _abandoned_error(self, queue: str) -> ServiceError:
        """Return why a slot was given up: the deadline passed, or other sends found the queue unresponsive."""
        self._deadline.remaining()
        return TimedOutError(f"waiting for {queue}: it did not answer others meanwhile")

    async def _pack(self, queue: str, copies: _Copies, messages: Iterable[TrackedMessage]) -> list[TrackedBatch]:
        link = self._context.secondary.send_link(queue)
        limit = await link.open_in_slot(self._slot(queue))
        if limit is None:
            raise self._abandoned_error(queue)

        def new_batch() -> TrackedBatch:
            return TrackedBatch(EncodedBatch(limit, max_message_bytes=link.max_message_bytes), copies=copies)

        packer = BatchPacker(new_batch, key=lambda tracked: partition_key(copies[tracked]))
        full = []
        for tracked in messages:
            try:
                full.append(packer.add(tracked))
            except (MessageTooLargeError, InvalidMessageError) as error:
                if self._context.unspooled_from is None:
                    raise
                self._refuse(tracked, error)
                del copies[tracked]
        return [*(batch for batch in full if batch is not None), *packer.flush()]

    async def _send_batch(self, queue: str, batch: TrackedBatch, copies: _Copies) -> None:
        operation = self._context.secondary.send_link(queue).send_in_slot
        while True:
            slot = await self._leased_slot(queue)
            if await self._executor.attempt(batch, operation, slot, route=Route.BACKLOG, queue=queue):
                break
            if self._has_lease:
                raise self._abandoned_error(queue)
        self._budget.start_attempt()
        self._selector.unresponsive = False
        for tracked in batch.messages:
            del copies[tracked]

    async def _leased_slot(self, queue: str) -> SendSlot:
        """Return a slot that needs a lease.

        :raises _FailedBackError: its route is another one now.
        """
        slot = self._slot(queue)
        if self._context.order is None:
            return slot
        health = await lease(self._context, self._entity, self._deadline, last=self._because)
        if not health.failed_over or (health.spool and self._context.unspooled_from is None):
            raise _FailedBackError
        return replace(
            slot,
            attempt_timeout=lambda: slot.attempt_timeout() if self._has_lease else None,
            still_wanted=lambda: self._has_lease,
        )

    @property
    def _has_lease(self) -> bool:
        return self._context.registry.lease_seconds_left(self._entity) > 0

    def _no_queue_error(self, last: ServiceError | None, unsent: int, *, tried: int) -> NoBacklogQueueError:
        health = self._context.registry.current(self._entity)
        primary = health.reason if self._because is None else str(self._because)
        cause = last if last is not None else self._because
        return NoBacklogQueueError(
            f"{self._entity} is failed over ({primary}) and no backlog queue took the "
            f"{unsent} messages (tried {tried}, the last one: {last}): they are in .unsent; "
            "provision the backlog or try again",
            cause=TimedOutError("no backlog queue is configured") if cause is None else cause,
            result=SendResult(),
            unsent=(),
        )
