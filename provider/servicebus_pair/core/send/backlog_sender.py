"""Diverts messages: sends their copies to a backlog queue, and to another queue when that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from servicebus_pair.core.model.errors import InvalidMessageError, NoBacklogQueueError, PairError, ServiceError
from servicebus_pair.core.model.events import BacklogCopyTooLarge
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.sdk.message_batch import EncodedBatch
from servicebus_pair.core.sdk.send_link import STANDARD_BATCH_BYTES, SendLink
from servicebus_pair.core.send.backlog_copies import LARGEST_UNCHECKED, copy_overhead
from servicebus_pair.core.send.delivery_state import AttemptExecutor, TrackedMessage
from servicebus_pair.core.send.diversion import Diversion
from servicebus_pair.core.send.pair_context import PairContext
from servicebus_pair.core.send.timeouts import MAX_CALL_TIMEOUT, Deadline

_log = get_logger(__name__)
_MAX_BACKGROUND_TASKS = 16


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

    def try_again(self) -> None:
        """Find out in the background whether a backlog queue takes a link again, if that is due."""
        health = self._context.backlog_health
        if health.claim_trial():
            self._start(self._try(), "try the backlog")

    async def _try(self) -> None:
        queue = self._context.queue_selector.select(self._queue)
        if queue is not None and await self._open(queue) is not None:
            _log.info("the backlog can be reached again")
            self._context.backlog_health.worked()

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
        for position, size in enumerate(batch.sizes):
            if size <= LARGEST_UNCHECKED:
                continue
            try:
                overhead = copy_overhead(batch.messages[position], entity=self._entity)
            except InvalidMessageError as error:
                _log.warning("entity=%s: in an outage its send would fail: %s", self._entity, error)
                continue
            # A copy within the Standard limit fits every tier. While the backlog does not answer, checks pile up:
            # beyond a few of them messages go unchecked.
            if size + overhead > STANDARD_BATCH_BYTES and len(self._background) < _MAX_BACKGROUND_TASKS:
                self._start(self._warn_if_too_large(batch.ids[position], size, overhead), "check the backlog limit")

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

    async def send(
        self,
        messages: Sequence[TrackedMessage],
        executor: AttemptExecutor,
        *,
        because: ServiceError | None,
        deadline: Deadline,
    ) -> list[TrackedMessage]:
        """Send copies of messages to the backlog: all of them are accepted or refused, or an error is raised.

        What was accepted before the error is in the account of ``executor``.

        :param because: the failure on the primary that led here, if this send saw it.
        :returns: what is left because the entity failed back meanwhile, which matters in session order only.
        :raises NoBacklogQueueError: no backlog queue accepted them; names both failures.
        :raises SendTimeoutError: the deadline passed first.
        :raises ServiceError: a copy does not fit the backlog, or the SDK refused it.
        """
        diversion = Diversion(self._entity, self._context, executor, because=because, deadline=deadline)
        try:
            left, self._queue = await diversion.send(messages, preferred=self._queue)
        except NoBacklogQueueError:
            self._context.backlog_health.failed()
            raise
        self._context.backlog_health.worked()
        return left
