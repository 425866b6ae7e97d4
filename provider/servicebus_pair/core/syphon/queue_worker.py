"""Moves messages of one backlog queue over one link, one batch at a time (SPEC section 6).

A step receives a batch, restores the original messages, sends them to the primary and settles: a message is completed
only after the primary confirmed it, kept or abandoned after a transient failure, and dead-lettered if it can never be
delivered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from math import inf
from typing import Final

from servicebus_pair.core.model.errors import (
    EntityNotFoundError,
    ServiceError,
    TimedOutError,
    UndeliverableError,
)
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.sdk.message_browser import MessageBrowser
from servicebus_pair.core.sdk.received_message import ReceivedMessage
from servicebus_pair.core.syphon.backlog_entry import BacklogEntry, session_of
from servicebus_pair.core.syphon.batch_sender import (
    BatchSender,
    DrainCounters,
    LocksExpiringError,
    dead_letter_reason,
)
from servicebus_pair.core.syphon.drain_context import CALL_TIMEOUT, DrainContext
from servicebus_pair.core.syphon.settlement import RELEASE_TIMEOUT, Settlement

_log = get_logger(__name__)
# Messages that wait for failing destinations, in batches; they are sent one after the other when a backoff ends.
_MAX_WAITING_BATCHES: Final = 4
# Seconds. If the rate limit grants nothing for so long, all locked messages are released.
_MAX_IDLE_WITH_LOCKS: Final = 10.0
_MAX_IDLE_WITH_WAITING: Final = 1.0
# A batch that was sent for so long, and not to its end, was too large for its locks.
_MIN_SENDING_SECONDS: Final = 1.0


class QueueWorker:
    """Moves messages of one backlog queue over one link.

    Messages for a failing destination stay locked until the destination is tried again or their locks come near their
    end. Beyond four batches of them, further ones are left to their locks, so that the messages behind them are
    reached and memory stays bounded.

    :param queue: path of the backlog queue.
    :param counters: shared by all links to the queue.
    :ivar waiting_for_destination: locked entries by failing destination.
    :ivar skipped: sequence numbers of messages that this drain does not handle.
    :ivar highest_sequence_number: of all messages received, or found behind them.
    :ivar is_receiving: the step under way has received nothing yet.
    :ivar held_back: the last step abandoned messages of sessions whose earlier messages are locked elsewhere.
    :ivar received_few: the last receive returned less than half of what was requested, or ended in silence: the queue
        may be nearly empty.
    """

    def __init__(self, context: DrainContext, queue: str, *, counters: DrainCounters | None = None) -> None:
        self.queue = queue
        self.counters = DrainCounters() if counters is None else counters
        self.waiting_for_destination: dict[str, list[BacklogEntry]] = {}
        self.skipped: set[int] = set()
        self.highest_sequence_number = 0
        self.received_few = False
        self.is_receiving = False
        self.held_back = False
        self._context = context
        self._source = context.source(queue)
        self._batch_size = min(context.first_batch_messages, context.max_batch_messages)
        self._locked: dict[int, ReceivedMessage] = {}
        self._sender = BatchSender(
            context,
            queue,
            counters=self.counters,
            dead_letter=lambda entry, error: self._dead_letter(entry.received, error),
        )
        self._settlement = Settlement(context, queue, self._source, self.counters)
        self._received_full_batch = False
        # Messages that were asked for, and not received yet.
        self._requested = 0
        self._shrink_batch = False
        # Held from sending a batch to completing it, by one link to the queue at a time: the other one receives.
        self._sending = asyncio.Lock()

    def clone(self) -> QueueWorker:
        """Return a worker with another link to the queue, starting with what this one has learned."""
        clone = QueueWorker(self._context, self.queue, counters=self.counters)
        clone.skipped, clone._sending = self.skipped, self._sending
        clone._batch_size, clone._sender.recent_max_bytes = self._batch_size, self._sender.recent_max_bytes
        return clone

    @property
    def batch_size(self) -> int:
        """Maximum number of messages that the next step receives."""
        return self._batch_size

    async def step(self, *, wait: float) -> int:
        """Move one batch; failures of destinations are recorded in the backoff.

        :param wait: seconds to wait for the first message.
        :returns: how many messages were handled; 0 does not prove that the queue is empty.
        :raises ServiceError: the backlog queue cannot be read.
        """
        batch = await self._take_due(self._context.clock.now())
        due = bool(batch)
        count = sum(map(len, batch.values()))
        if not due:
            received = await self._receive(wait)
            count = len(received)
            batch = await self._group_by_destination(received)
            if self._context.ordered:
                batch = await self._keep_session_order(batch)
        async with self._sending:
            if batch and not due:
                await self._request_next(batch)
            started = self._context.clock.now()
            try:
                deliveries = (self._deliver(entity, entries, due=due) for entity, entries in batch.items())
                results = await asyncio.gather(*deliveries, return_exceptions=True)
                seconds = self._context.clock.now() - started
                self._batch_size = self._sender.next_batch_size(
                    self._batch_size, count=count, seconds=seconds, shrink=self._shrink_batch
                )
                self._shrink_batch = False
            finally:
                await self._complete()
        for error in results:
            if error is not None:
                raise error
        return count

    async def peek(self, from_sequence_number: int, *, max_messages: int) -> list[ReceivedMessage]:
        """Return a page of the queue without locking it. :raises ServiceError: it cannot be read."""
        return await self._source.peek(
            max_messages=max_messages, timeout=CALL_TIMEOUT, from_sequence_number=from_sequence_number
        )

    def readable_pages(self, from_sequence_number: int) -> AsyncIterator[list[ReceivedMessage]]:
        """Yield what can be decoded, from a sequence number on, by peeking. :raises ServiceError: it cannot be read."""
        browser = MessageBrowser(self._source, page_size=self._context.max_batch_messages, timeout=CALL_TIMEOUT)
        return browser.readable_pages(from_sequence_number)

    async def release(self) -> None:
        """Abandon all locked messages, within 2 s."""
        self.waiting_for_destination.clear()
        locked, requested = list(self._locked.values()), self._requested
        self._requested = 0
        if not locked and not requested:
            return
        try:
            async with asyncio.timeout(RELEASE_TIMEOUT):
                # With credit left, the service would deliver them again at once over this link.
                await self._source.drain_credit(timeout=RELEASE_TIMEOUT)
                await self._abandon(locked)
        except (TimeoutError, ServiceError):
            _log.warning("backlog queue=%s not released=%d in time: their locks end", self.queue, len(locked))

    async def detach(self) -> None:
        """Abandon all locked messages and detach the link; the next step attaches again."""
        await self.release()
        self._source.detach_soon()

    async def _receive(self, wait: float) -> list[ReceivedMessage]:
        permits, count = await self._acquire_permits(), 0
        if not permits:
            return []
        try:
            self._requested, self.is_receiving = 0, True
            received = await self._source.receive(max_messages=permits, max_wait_time=wait, timeout=CALL_TIMEOUT)
            count = len(received)
            self._locked.update((id(each), each) for each in received)
        finally:
            self.is_receiving = False
            self._context.rate_limiter.release(permits - count)
        self._received_full_batch = count == permits
        self.received_few = 2 * count < permits or self._source.fell_silent
        # Not in the order of their numbers if the entity is partitioned.
        self.highest_sequence_number = max([self.highest_sequence_number, *(each.sequence_number for each in received)])
        return received

    async def _acquire_permits(self) -> int:
        """Wait until the rate limit allows a receive; return 0 when waiting messages need attention first."""
        limiter = self._context.rate_limiter
        # A queue that waits for messages holds at most one permit of the shared rate.
        wanted = self._batch_size if self._received_full_batch or limiter.rate is None else 1
        if self.waiting_for_destination:
            return await limiter.acquire(wanted, timeout=_MAX_IDLE_WITH_WAITING)
        permits = await limiter.acquire(wanted, timeout=_MAX_IDLE_WITH_LOCKS)
        if not permits:
            await self.detach()
            permits = await limiter.acquire(wanted)
        return permits

    async def _keep_session_order(self, batch: dict[str, list[BacklogEntry]]) -> dict[str, list[BacklogEntry]]:
        """Abandon messages of sessions that would overtake an earlier message, and return the others in order.

        Messages with a session id are in ordinary queues only if an earlier version diverted them. An earlier message
        of the session may be locked by another syphon, or over another link, and not be sent yet.
        """
        self.held_back = False
        entries = [entry for entries in batch.values() for entry in entries if entry.session is not None]
        if not entries:
            return batch
        self._context.old_form_seen = True
        try:
            first_missing = await self._first_not_held(max(entry.received.sequence_number for entry in entries))
        except ServiceError:
            await self._abandon([entry.received for entries in batch.values() for entry in entries])
            raise
        overtaking = {
            id(entry) for entry in entries if first_missing.get(entry.session, inf) < entry.received.sequence_number
        }
        self.held_back = bool(overtaking)
        await self._abandon([entry.received for entry in entries if id(entry) in overtaking])
        ordered: dict[str, list[BacklogEntry]] = {}
        names: dict[str, str] = {}
        kept = (entry for entries in batch.values() for entry in entries if id(entry) not in overtaking)
        for entry in sorted(kept, key=lambda each: each.received.sequence_number):
            name = names.setdefault(entry.entity.casefold(), entry.entity)
            ordered.setdefault(name, []).append(entry)
        return ordered

    async def _first_not_held(self, last: int) -> dict[tuple[str, str] | None, int]:
        """Return the first message of each session that is not locked by this worker, at least up to a number."""
        held = {each.sequence_number for each in self._locked.values()}
        found: dict[tuple[str, str] | None, int] = {}
        async for page in self.readable_pages(1):
            for message in page:
                if message.sequence_number not in held:
                    found.setdefault(session_of(message), message.sequence_number)
            if page[-1].sequence_number >= last:
                break
        return found

    async def _take_due(self, now: float) -> dict[str, list[BacklogEntry]]:
        """Take a batch of waiting entries whose destinations' backoff ended; abandon those whose locks end soon."""
        room, expiring = self._batch_size, list[BacklogEntry]()
        due: dict[str, list[BacklogEntry]] = {}
        for entity, entries in list(self.waiting_for_destination.items()):
            kept = [entry for entry in entries if entry.send_before > now]
            if self._context.ordered and len(kept) < len(entries):
                # Those behind an abandoned message must not overtake it.
                kept = []
            expiring += [entry for entry in entries if not kept or entry.send_before <= now]
            del self.waiting_for_destination[entity]
            taken = room if self._context.backoff.is_due(entity, now=now) else 0
            if kept[:taken]:
                due[entity] = kept[:taken]
                room -= len(due[entity])
            if kept[taken:]:
                self.waiting_for_destination[entity] = kept[taken:]
        await self._abandon([entry.received for entry in expiring])
        return due

    async def _group_by_destination(self, received: Iterable[ReceivedMessage]) -> dict[str, list[BacklogEntry]]:
        batch: dict[str, list[BacklogEntry]] = {}
        now = self._context.clock.now()
        for message in received:
            if self.skipped and message.sequence_number in self.skipped:
                self._skip(message)
                continue
            try:
                entry = self._context.read_entry(message, now=now)
            except UndeliverableError as error:
                await self._dead_letter(message, error)
                continue
            if self._context.selection.matches(entry.entity):
                batch.setdefault(entry.entity, []).append(entry)
            else:
                self._skip(message)
        return batch

    async def _deliver(self, entity: str, entries: Sequence[BacklogEntry], *, due: bool) -> None:
        """Send entries to ``entity``; what it does not accept waits for it.

        :param due: they have waited for it, before those that still do.
        """
        pending = {id(entry.message): entry for entry in entries}
        backoff = self._context.backoff
        async with self._context.destination(entity) as destination:
            started = self._context.clock.now()
            # What was received first is sent first, when the next step takes it.
            overtakes = self._context.ordered and not due and self._is_waited_for(entity)
            if overtakes or not backoff.try_acquire(entity, now=started):
                self._wait_for_destination(entity, pending, first=due)
                return
            try:
                await self._sender.send(destination, pending)
                self._context.record_success(entity)
            except EntityNotFoundError as error:
                backoff.record_success(entity)
                for entry in pending.values():
                    await self._dead_letter(entry.received, UndeliverableError(dead_letter_reason(error), str(error)))
            except LocksExpiringError:
                # Else the time was spent waiting for a link, however few messages there are.
                self._shrink_batch |= self._context.clock.now() - started > _MIN_SENDING_SECONDS
                await self._abandon([entry.received for entry in pending.values()])
            except ServiceError as error:
                self._shrink_batch |= isinstance(error, TimedOutError)
                self._context.record_failure(entity, error, started=started, queue=self.queue)
                self._wait_for_destination(entity, pending, first=due)
            finally:
                backoff.release(entity, started=started)

    async def _request_next(self, batch: dict[str, list[BacklogEntry]]) -> None:
        """Ask for the next batch, which arrives while this one is stored. :raises ServiceError: the link is lost."""
        if not (request := self._next_request()):
            return
        self._requested = request
        try:
            await self._source.request(request, timeout=CALL_TIMEOUT)
        except ServiceError:
            # They come again: what is sent now would be sent twice.
            await self._abandon([entry.received for entries in batch.values() for entry in entries])
            raise

    def _next_request(self) -> int:
        """Return how many messages the next step receives, if that is known."""
        known = self._received_full_batch and not self.waiting_for_destination
        return self._context.request_ahead(self._batch_size) if known else 0

    async def _complete(self) -> None:
        """Complete the messages that the primary confirmed, and ask for more if the next step receives some."""
        confirmed, self._sender.confirmed = self._sender.confirmed, []
        for entry in confirmed:
            self._locked.pop(id(entry.received), None)
        request = self._next_request() if confirmed else 0
        self._requested = request or self._requested
        await self._settlement.complete([entry.received for entry in confirmed], request=request)

    def _is_waited_for(self, entity: str) -> bool:
        return any(name.casefold() == entity.casefold() for name in self.waiting_for_destination)

    def _wait_for_destination(self, entity: str, pending: dict[int, BacklogEntry], *, first: bool) -> None:
        entries = list(pending.values())
        waiting = sum(map(len, self.waiting_for_destination.values()))
        room = _MAX_WAITING_BATCHES * self._batch_size - waiting
        others = self.waiting_for_destination.get(entity, [])
        self.waiting_for_destination[entity] = entries[:room] + others if first else others + entries[:room]
        for entry in entries[room:]:
            self._locked.pop(id(entry.received), None)

    def _skip(self, received: ReceivedMessage) -> None:
        """Leave a message that this drain does not handle; it is abandoned at the end, or its lock expires."""
        self.skipped.add(received.sequence_number)
        if len(self._locked) > _MAX_WAITING_BATCHES * self._batch_size:
            self._locked.pop(id(received), None)

    async def _abandon(self, received: Sequence[ReceivedMessage]) -> None:
        if not received:
            return
        for each in received:
            self._locked.pop(id(each), None)
        results = await self._source.abandon(received, timeout=CALL_TIMEOUT)
        failed = sum(error is not None for error in results)
        if failed:
            _log.warning("backlog queue=%s not released=%d: their locks end by themselves", self.queue, failed)

    async def _dead_letter(self, received: ReceivedMessage, error: UndeliverableError) -> None:
        if self._context.redrive:
            self._skip(received)
            return
        if await self._settlement.dead_letter(received, error):
            self._locked.pop(id(received), None)
