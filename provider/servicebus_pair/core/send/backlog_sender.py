"""Diverts messages: sends their copies to a backlog queue, and to another queue when that fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final

from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.model.errors import (
    InvalidMessageError,
    MessageTooLargeError,
    NoBacklogQueueError,
    PairError,
    ServerBusyError,
    ServiceError,
    TimedOutError,
    UnreachableError,
)
from servicebus_pair.core.model.events import BacklogCopyTooLarge, MessagesAccepted, QueuePulled, Route
from servicebus_pair.core.model.results import SendResult
from servicebus_pair.core.protocol.backlog_message import wrap
from servicebus_pair.core.protocol.batching import BatchPacker, partition_key
from servicebus_pair.core.sdk._private.batch_encoding import EncodedBatch, encoded_size
from servicebus_pair.core.sdk.send_link import SendLink, SendSlot, noop
from servicebus_pair.core.send.backlog_copies import copy_overhead, needs_size_check
from servicebus_pair.core.send.delivery_state import DeliveryState
from servicebus_pair.core.send.pair_context import DEFAULT_BATCH_LIMIT, PairContext
from servicebus_pair.core.send.timeouts import MAX_CALL_TIMEOUT, BacklogSearchBudget, Deadline, search_timeout

__all__ = ["BacklogSender"]

_log = logging.getLogger(__name__)
_MAX_ORDERED_ATTEMPTS: Final = 3
_MAX_BACKGROUND_TASKS: Final = 16


class BacklogSender:
    """Sends messages of one entity to a backlog queue; each sender has its own and keeps its queue."""

    def __init__(self, entity: str, context: PairContext) -> None:
        self._entity = entity
        self._context = context
        self._queue: str | None = None
        self._background: set[asyncio.Task[Any]] = set()

    def prepare(self) -> None:
        """Open the link to a backlog queue in the background, because the entity may fail over at any time."""
        self._queue = self._context.queue_selector.select(self._queue)
        if self._queue is not None and not self._context.secondary.send_link(self._queue).attached:
            self._start(self._open(self._queue), "prepare the divert")

    async def _open(self, queue: str) -> SendLink | None:
        link = self._context.secondary.send_link(queue)
        try:
            await link.open(timeout=MAX_CALL_TIMEOUT)
        except PairError as error:
            _log.debug("backlog queue=%s cannot be opened now: %s", queue, error)
            return None
        return link

    def _start(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def check_sizes(self, batch: EncodedBatch) -> None:
        """Warn, in the background, of messages to a healthy entity whose copies would not fit the backlog."""
        limit = DEFAULT_BATCH_LIMIT
        for message, ref in zip(batch.messages, batch.refs, strict=True):
            if not needs_size_check(ref.size_bytes, limit=limit):
                continue
            try:
                size, overhead = encoded_size(message), copy_overhead(message, entity=self._entity)
            except InvalidMessageError as error:
                _log.warning("entity=%s: in an outage its send would fail: %s", self._entity, error)
                continue
            # A copy within the Standard limit fits every tier. While the backlog does not answer, checks pile up:
            # beyond a few of them messages go unchecked.
            if size + overhead > limit and len(self._background) < _MAX_BACKGROUND_TASKS:
                self._start(self._warn_if_too_large(ref.message_id, size, overhead), "check the backlog limit")

    async def _warn_if_too_large(self, message_id: str, size: int, overhead: int) -> None:
        queue = self._context.queue_selector.select(self._queue)
        if queue is None:
            return
        link = await self._open(queue)
        if link is None:
            return
        limit = max(link.max_batch_bytes, link.max_message_bytes)
        if size + overhead > limit:
            _log.warning(
                "entity=%s message=%s fits with %d bytes, its backlog copy takes %d more: the limit there is %d",
                self._entity,
                message_id,
                size,
                overhead,
                limit,
            )
            event = BacklogCopyTooLarge(self._entity, message_id, size, overhead, limit, self._context.clock.now())
            self._context.registry.emit_best_effort(event)

    async def send(self, state: DeliveryState, *, because: ServiceError | None, deadline: Deadline) -> None:
        """Send copies of the pending messages to the backlog: all of them, or an error is raised.

        What was accepted before the error is recorded in ``state``.

        :param because: the failure on the primary that led here, if this send saw it.
        :raises NoBacklogQueueError: no backlog queue accepted them; names both failures.
        :raises SendTimeoutError: the deadline passed first.
        :raises ServiceError: a copy does not fit the backlog, or the SDK refused it.
        """
        copies = {number: wrap(message, entity=self._entity) for number, message in state.pending.items()}
        order = self._context.order
        if order is not None:
            for queue, part in order.group_by_queue(self._entity, copies, state.pending).items():
                await self._send_in_order(queue, part, state, because=because, deadline=deadline)
            return
        selector = self._context.queue_selector
        tried: set[str] = set()
        retried: set[str] = set()
        last: ServiceError | None = None
        budget = self._budget(deadline)
        while copies:
            deadline.remaining(last=last)
            next_queue = selector.select(self._queue, exclude=tried)
            if next_queue is None or budget.exhausted:
                selector.unresponsive = budget.exhausted
                raise self._no_queue_error(because, last, len(copies), tried=len(tried))
            self._queue = next_queue
            tried.add(next_queue)
            had_worked = self._context.secondary.send_link(next_queue).attached
            try:
                await self._send_copies(next_queue, copies, state, budget)
            except (MessageTooLargeError, InvalidMessageError):
                raise
            except ServiceError as error:
                budget.fail_attempt()
                last = error
                allow_retry = had_worked and next_queue not in retried
                if await self._keeps_queue(next_queue, error, allow_retry=allow_retry, deadline=deadline):
                    tried.discard(next_queue)
                retried.add(next_queue)

    async def _send_in_order(
        self,
        queue: str,
        copies: dict[int, AmqpAnnotatedMessage],
        state: DeliveryState,
        *,
        because: ServiceError | None,
        deadline: Deadline,
    ) -> None:
        """Send copies to this queue only: with session order, each session has one backlog queue."""
        failures = 0
        budget = self._budget(deadline)
        while copies:
            deadline.remaining(last=because)
            try:
                await self._send_copies(queue, copies, state, budget)
            except (MessageTooLargeError, InvalidMessageError):
                raise
            except ServiceError as error:
                budget.fail_attempt()
                if await self._wait_if_busy(error, deadline):
                    continue
                failures += 1
                if failures == _MAX_ORDERED_ATTEMPTS or budget.exhausted:
                    self._context.queue_selector.unresponsive = budget.exhausted
                    raise self._no_queue_error(because, error, len(copies), tried=1) from error
                _log.warning("backlog queue=%s of these sessions failed: %s", queue, error)

    async def _keeps_queue(self, queue: str, error: ServiceError, *, allow_retry: bool, deadline: Deadline) -> bool:
        """Return whether a failed queue is tried again; else remove it for all senders.

        :param allow_retry: retry after the loss of a working connection: as on the primary, it is not counted once.
        """
        if await self._wait_if_busy(error, deadline) or (allow_retry and isinstance(error, UnreachableError)):
            return True
        if self._context.queue_selector.remove(queue):
            _log.warning("backlog queue=%s leaves the rotation: %s", queue, error)
            self._context.registry.emit_best_effort(QueuePulled(queue, str(error), self._context.clock.now()))
        return False

    async def _wait_if_busy(self, error: ServiceError, deadline: Deadline) -> bool:
        """Wait for ``server_busy_delay`` if the service is busy; return False for any other error."""
        if not isinstance(error, ServerBusyError):
            return False
        delay = self._context.options.server_busy_delay.total_seconds()
        if delay > deadline.remaining(last=error):
            raise deadline.timeout_error(last=error)
        await self._context.clock.sleep(delay)
        return True

    def _budget(self, deadline: Deadline) -> BacklogSearchBudget:
        interval = self._context.options.failover_interval.total_seconds()
        seconds = search_timeout(interval, unresponsive=self._context.queue_selector.unresponsive)
        return BacklogSearchBudget(self._context.clock, seconds=seconds, deadline=deadline)

    def _slot(self, queue: str, budget: BacklogSearchBudget, *, on_start: Callable[[], None] = noop) -> SendSlot:
        """Return a slot that is given up when other sends found meanwhile that the queue does not answer."""
        selector = self._context.queue_selector
        removed, unresponsive = selector.is_removed(queue), selector.unresponsive

        def seconds() -> float | None:
            if (selector.is_removed(queue) and not removed) or (selector.unresponsive and not unresponsive):
                return None
            # Time spent waiting for a busy link is not charged to the queue.
            budget.start_attempt()
            return budget.call_timeout()

        return SendSlot(attempt_timeout=seconds, on_start=on_start, wait_seconds=budget.deadline.remaining())

    def _abandoned_error(self, queue: str, budget: BacklogSearchBudget) -> ServiceError:
        """Return why a slot was given up: the deadline passed, or other sends found the queue unresponsive."""
        budget.deadline.remaining()
        return TimedOutError(f"waiting for {queue}: it did not answer others meanwhile")

    async def _send_copies(
        self,
        queue: str,
        copies: dict[int, AmqpAnnotatedMessage],
        state: DeliveryState,
        budget: BacklogSearchBudget,
    ) -> None:
        """Send ``copies`` to ``queue`` in batches, and remove from ``copies`` what was accepted."""
        budget.start_attempt()
        try:
            for batch in await self._pack(queue, copies, budget):
                await self._send_batch(queue, batch, copies, state, budget)
        except MessageTooLargeError as error:
            raise MessageTooLargeError(f"as a copy for the backlog, {error}") from error

    async def _pack(
        self, queue: str, copies: Mapping[int, AmqpAnnotatedMessage], budget: BacklogSearchBudget
    ) -> list[EncodedBatch]:
        link = self._context.secondary.send_link(queue)
        limit = await link.open_in_slot(self._slot(queue, budget))
        if limit is None:
            raise self._abandoned_error(queue, budget)
        packer: BatchPacker[EncodedBatch] = BatchPacker(
            partial(EncodedBatch, limit, max_message_bytes=link.max_message_bytes), key=partition_key
        )
        full = [packer.add(copy) for copy in copies.values()]
        return [*(batch for batch in full if batch is not None), *packer.flush()]

    async def _send_batch(
        self,
        queue: str,
        batch: EncodedBatch,
        copies: dict[int, AmqpAnnotatedMessage],
        state: DeliveryState,
        budget: BacklogSearchBudget,
    ) -> None:
        # All pending messages have one partition key, so batches follow the order of ``copies``.
        numbers = list(islice(copies, len(batch)))
        in_doubt_before = state.in_doubt_numbers
        slot = self._slot(queue, budget, on_start=lambda: state.mark_in_doubt(numbers))
        try:
            sent = await self._context.secondary.send_link(queue).send_in_slot(batch, slot)
        except ServiceError as error:
            if not error.may_be_stored:
                state.restore_in_doubt(in_doubt_before)
            raise
        if not sent:
            raise self._abandoned_error(queue, budget)
        budget.start_attempt()
        self._context.queue_selector.unresponsive = False
        state.mark_accepted(numbers, route=Route.BACKLOG, queue=queue, refs=batch.refs)
        for number in numbers:
            del copies[number]
        at = self._context.clock.now()
        self._context.registry.emit(MessagesAccepted(self._entity, Route.BACKLOG, queue, tuple(batch.refs), at))

    def _no_queue_error(
        self, because: ServiceError | None, last: ServiceError | None, unsent: int, *, tried: int
    ) -> NoBacklogQueueError:
        health = self._context.registry.current(self._entity)
        primary = health.reason if because is None else str(because)
        cause = last if last is not None else because
        return NoBacklogQueueError(
            f"{self._entity} is failed over ({primary}) and no backlog queue took the "
            f"{unsent} messages (tried {tried}, the last one: {last}): they are in .unsent; "
            "provision the backlog or try again",
            cause=TimedOutError("no backlog queue is configured") if cause is None else cause,
            result=SendResult(),
            unsent=(),
        )
