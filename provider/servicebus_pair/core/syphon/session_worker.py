"""Moves the messages of one accepted session of a backlog queue, in order (SPEC section 6).

The broker gives a session to one receiver at a time, and its messages in order. So order is kept by sending one batch
after the other was confirmed, and by sending nothing behind a message that was not: neither a second syphon nor a
restart can make a message arrive first that was sent later.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Final

from servicebus_pair.core.health.leases import FAILBACK_POLL_SECONDS
from servicebus_pair.core.model.errors import (
    EntityNotFoundError,
    LockLostError,
    ServiceError,
    TimedOutError,
    UndeliverableError,
)
from servicebus_pair.core.syphon.backlog_entry import SENDING_SHARE, BacklogEntry, lock_seconds
from servicebus_pair.core.syphon.batch_sender import (
    BatchSender,
    DrainCounters,
    LocksExpiringError,
    dead_letter_reason,
)
from servicebus_pair.core.syphon.drain_context import CALL_TIMEOUT, DrainContext
from servicebus_pair.core.syphon.ports import SessionSource
from servicebus_pair.core.syphon.settlement import Settlement

# Seconds. The lock is renewed at least so often while the rate limit grants nothing.
_MAX_IDLE: Final = 10.0
_RENEWAL_SHARE: Final = 0.5
# Little is left if it can be moved in this time, half of what a failback waits for it.
_LITTLE_SECONDS: Final = FAILBACK_POLL_SECONDS / 2
# A clock that differs from the service's must not make a lock look longer than those of backlog queues.
_MAX_LOCK_SECONDS: Final = 60.0


class SessionWorker:
    """Moves messages of one session, over a link that has accepted it.

    :param queue: path of the backlog queue.
    :param counters: shared by all sessions of the queue.
    :param accepted: messages of the queue that the primary has accepted, and that could not be completed: they are
        completed when they come again, and not sent. By sequence number and id, as a queue that was deleted and made
        again counts from the start.
    :ivar waiting: received messages that were not sent, in order.
    :ivar blocked_by: the destination of the first of them, if it is in backoff.
    :ivar not_selected: the first of them is for a destination that this drain does not serve.
    :ivar has_completed: messages were moved and completed.
    """

    def __init__(
        self,
        context: DrainContext,
        queue: str,
        source: SessionSource,
        *,
        counters: DrainCounters,
        accepted: set[tuple[int, str]],
    ) -> None:
        self.waiting: list[BacklogEntry] = []
        self.blocked_by: str | None = None
        self.not_selected = False
        self.has_completed = False
        self._context = context
        self._queue = queue
        self._source = source
        self._accepted = accepted
        self._settlement = Settlement(context, queue, source, counters)
        self._sender = BatchSender(context, queue, counters=counters, dead_letter=self._dead_letter)
        self._batch_size = min(context.first_batch_messages, context.max_batch_messages)
        self._received_full_batch = False
        self._highest_sequence_number = 0
        self._watched: str | None = None
        self._remember_lock()

    async def step(self, *, wait: float) -> bool:
        """Move what was received, or else receive and move a batch; stop at the first message that cannot be sent now.

        :param wait: seconds to wait for the first message.
        :returns: False when the session has no message.
        :raises ServiceError: the session is lost, or its queue cannot be read.
        """
        self.blocked_by = None
        if not self.waiting:
            if not self._context.continuous and await self._is_empty():
                return False
            if not await self._receive(wait):
                return False
        received, started = tuple(self.waiting), self._context.clock.now()
        while self.waiting and not self._context.paused:
            if not await self._send_first_batch():
                break
        if received and not self.waiting:
            await self._report_if_little_is_left(received, seconds=self._context.clock.now() - started)
        return True

    def close(self) -> None:
        """Watch the health of the session's entity no longer."""
        if self._watched is not None and self._context.reports is not None:
            self._context.reports.unwatch(self._watched)
            self._watched = None

    async def keep_lock(self, *, for_seconds: float = 0.0) -> None:
        """Renew the lock of the session if less than half of it is left, or less than a send may take.

        :param for_seconds: how long the send may take.
        :raises ServiceError: the session is lost.
        """
        remaining = self._lock_ends - self._context.clock.now()
        if remaining < max(_RENEWAL_SHARE * self._lock_seconds, for_seconds / SENDING_SHARE):
            await self._source.renew(timeout=CALL_TIMEOUT)
            self._remember_lock()

    async def _report_if_little_is_left(self, moved: Sequence[BacklogEntry], *, seconds: float) -> None:
        """Let a failback begin if what is left can be moved while it holds the sends.

        Sequence numbers are those of the queue: at most so many messages are left as the numbers advance.

        :param seconds: how long it took to send and complete ``moved``.
        """
        entity, reports = moved[-1].entity, self._context.reports
        if reports is None:
            return
        if self._watched is None:
            self._watched = entity
            reports.watch(entity)
        if not reports.is_wanted(entity, self._queue):
            return
        rate = len(moved) / max(seconds, 0.001)
        limit = self._context.rate_limiter.rate
        few = int(_LITTLE_SECONDS * (rate if limit is None else min(rate, limit)))
        beyond = moved[-1].received.sequence_number + few + 1
        if not await self._source.peek(max_messages=1, timeout=CALL_TIMEOUT, from_sequence_number=beyond):
            reports.caught_up(entity, self._queue)

    def _remember_lock(self) -> None:
        now = self._context.clock.now()
        self._lock_seconds = min(lock_seconds(self._source.locked_until, now), _MAX_LOCK_SECONDS)
        self._lock_ends = now + self._lock_seconds

    async def _receive(self, wait: float) -> bool:
        """Receive a batch; return False if there was none."""
        limiter = self._context.rate_limiter
        # A session that may be empty holds at most one permit of the shared rate.
        wanted = self._batch_size if self._received_full_batch or limiter.rate is None else 1
        permits, count = await limiter.acquire(wanted, timeout=_MAX_IDLE), 0
        await self.keep_lock()
        if not permits:
            return True
        try:
            received = await self._source.receive(max_messages=permits, max_wait_time=wait, timeout=CALL_TIMEOUT)
            count = len(received)
        finally:
            limiter.release(permits - count)
        self._received_full_batch = count == permits
        if received:
            self._highest_sequence_number = received[-1].sequence_number
        now, again = self._context.clock.now(), list[Any]()
        for message in received:
            if self._accepted and _identity(message) in self._accepted:
                again.append(message)
                continue
            try:
                self.waiting.append(self._context.read_entry(message, now=now))
            except UndeliverableError as error:
                await self._settlement.dead_letter(message, error)
        if again:
            await self._complete(again)
        return bool(received)

    async def _is_empty(self) -> bool:
        """Peek behind what was received, if that was not all that was requested: quicker than to wait for more."""
        if self._received_full_batch or not self._highest_sequence_number:
            return False
        beyond = self._highest_sequence_number + 1
        return not await self._source.peek(max_messages=1, timeout=CALL_TIMEOUT, from_sequence_number=beyond)

    async def _complete(self, received: Sequence[Any], *, request: int = 0) -> None:
        """Complete messages that the primary has accepted. :raises LockLostError: that is not confirmed."""
        if not await self._settlement.complete(received, request=request):
            self._accepted |= set(map(_identity, received))
            raise LockLostError(f"messages of {self._queue} were sent and not completed: the session is accepted again")
        if self._accepted:
            self._accepted -= set(map(_identity, received))
        self.has_completed |= bool(received)

    async def _send_first_batch(self) -> bool:
        """Send messages to the destination of the first one; return False if some of them were not sent.

        :raises ServiceError: the session is lost.
        """
        entity = self.waiting[0].entity
        if not self._context.selection.matches(entity):
            self.not_selected = True
            return False
        batch = list(takewhile(lambda each: each.entity == entity, self.waiting[: self._batch_size]))
        backoff = self._context.backoff
        async with self._context.destination(entity) as destination:
            await self.keep_lock(for_seconds=self._attempt_seconds(entity))
            if len(batch) == len(self.waiting) and (request := self._request()):
                # They arrive while this batch is stored; the lock of the session keeps other receivers away.
                await self._source.request(request, timeout=CALL_TIMEOUT)
            started = self._context.clock.now()
            if not backoff.try_acquire(entity, now=started):
                self.blocked_by = entity
                return False
            pending = {id(entry.message): entry for entry in batch}
            send_before = started + SENDING_SHARE * (self._lock_ends - started)
            failed = timed_out = False
            try:
                await self._sender.send(destination, pending, send_before=send_before, lock_seconds=self._lock_seconds)
                self._context.record_success(entity)
            except EntityNotFoundError as error:
                backoff.record_success(entity)
                for entry in list(pending.values()):
                    await self._dead_letter(entry, UndeliverableError(dead_letter_reason(error), str(error)))
                pending.clear()
            except LocksExpiringError:
                # Renewed before the next try: without a call in between, the event loop would run nothing else.
                failed, self._lock_ends = True, started
            except ServiceError as error:
                failed, timed_out = True, isinstance(error, TimedOutError)
                self.blocked_by = entity
                self._context.record_failure(entity, error, started=started, queue=self._queue)
            finally:
                backoff.release(entity, started=started)
                unsent = [entry for entry in batch if id(entry.message) in pending]
                self.waiting = unsent + self.waiting[len(batch) :]
                seconds = self._context.clock.now() - started
                self._batch_size = self._sender.next_batch_size(
                    self._batch_size, count=len(batch), seconds=seconds, shrink=timed_out
                )
                confirmed, self._sender.confirmed = self._sender.confirmed, []
                request = 0 if self.waiting else self._request()
                await self._complete([entry.received for entry in confirmed], request=request)
        return not failed

    def _request(self) -> int:
        """Return how many messages the next receive is for, if that is known."""
        return self._context.request_ahead(self._batch_size) if self._received_full_batch else 0

    def _attempt_seconds(self, entity: str) -> float:
        return min(self._context.attempts.current(entity), _RENEWAL_SHARE * self._lock_seconds)

    async def _dead_letter(self, entry: BacklogEntry, error: UndeliverableError) -> None:
        await self._settlement.dead_letter(entry.received, error)


def _identity(message: Any) -> tuple[int, str]:
    return message.sequence_number, str(message.message_id)
