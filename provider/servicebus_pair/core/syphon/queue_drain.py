"""The drain of one backlog queue: when to receive, when to peek, how long to wait, and when to stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from servicebus_pair.core.model.errors import ServiceError
from servicebus_pair.core.model.interfaces import sleep_until_set
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.syphon.batch_sender import DrainCounters
from servicebus_pair.core.syphon.drain_context import DrainContext
from servicebus_pair.core.syphon.drain_run import DrainRun
from servicebus_pair.core.syphon.policies.destination_backoff import backoff_delay
from servicebus_pair.core.syphon.queue_failures import QueueFailures
from servicebus_pair.core.syphon.queue_worker import QueueWorker
from servicebus_pair.core.syphon.survey import Surveyor

_log = get_logger(__name__)
# All times are seconds. A receive that returns nothing is followed by a peek, so it need not wait long.
_SHORT_WAIT: Final = 0.3
# Before a longer pause, locked messages are abandoned.
_MAX_PAUSE_WITH_LOCKS: Final = 10.0
_FIRST_PAGE_SIZE: Final = 5
# Messages that cannot be received are locked by another syphon. If that died, its locks end within the minute of the
# queue's LockDuration.
_MAX_WAIT_FOR_LOCKS: Final = 65.0
# Messages for failing destinations that are skipped before the whole queue pauses.
_MAX_SKIPPED: Final = 1000
# Longest pause while destinations are in backoff: messages for other destinations may arrive.
_MAX_PAUSE: Final = 30.0
# Longest pause while another syphon has locked all messages.
_MAX_PAUSE_FOR_LOCKS: Final = 5.0
_MIN_PAUSE: Final = 0.05
# More links to one queue gain little, and a syphon that is killed leaves what each of them has sent to be sent again.
_MAX_HELPERS: Final = 1


class QueueDrain:
    """Drains one backlog queue over one link, and over a second one while there is a lot to receive."""

    def __init__(self, context: DrainContext, run: DrainRun, queue: str, *, counters: DrainCounters) -> None:
        self._context = context
        self._run = run
        self._queue = queue
        self._counters = counters
        self._worker = QueueWorker(context, queue, counters=counters)
        self._surveyor = Surveyor(context)
        self._last_moved_at = context.clock.now()
        self._last_done = counters.done
        self._failures = QueueFailures(run, queue, counters)
        self._retry_delay = 0.0
        self._idle_steps = 0
        self._skipped = 0
        self._received_any = False
        # The last step was a long poll that returned nothing.
        self._long_poll_expired = False
        # All messages of the queue were received, and are for destinations in backoff.
        self._all_received = False
        self._last_found = 0
        # The sequence number of the first message that could be moved.
        self._first_workable = 1
        # Nothing is known yet, or the last step moved a lot: receive again. Else peek first, which finds out sooner
        # that nothing is left.
        self._expects_more = True

    async def work(self) -> None:
        """Drain the queue until it is empty, given up or stopped."""
        helpers: dict[asyncio.Task[None], QueueWorker] = {}
        try:
            while not await self._has_ended(helpers):
                await self._wait_while_paused()
                count = await self._step(self._run.long_poll if self._run.continuous else _SHORT_WAIT)
                if self._needs_helper(count) and len(helpers) < _MAX_HELPERS:
                    worker = self._worker.clone()
                    helper = asyncio.create_task(self._help(worker), name=f"syphon {self._queue}")
                    helpers[helper] = worker
                    helper.add_done_callback(helpers.pop)
                await self._pause_if_idle()
        finally:
            # Releasing messages is bounded in time, and must not be cancelled halfway.
            self._run.finishing.add(asyncio.current_task())
            self._run.busy_queues.discard(self._queue)
            for helper in set(helpers):
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            await self._worker.detach()

    async def _has_ended(self, helpers: dict[asyncio.Task[None], QueueWorker]) -> bool:
        """Return whether nothing is left, for this link to the queue and for the other one."""
        while True:
            finished = await self._is_finished()
            busy = {helper for helper, worker in helpers.items() if not (finished and worker.is_receiving)}
            if not busy or self._run.stopped.is_set() or not self._is_near_end:
                return finished
            # What was found is perhaps what they are moving: to receive would be to wait for nothing.
            done, _ = await asyncio.wait(busy, timeout=None if finished else _SHORT_WAIT)
            if not done:
                return False

    @property
    def _is_near_end(self) -> bool:
        return not (self._run.continuous or self._expects_more)

    def _needs_helper(self, count: int) -> bool:
        """Return whether to open another link: a full batch was received, and other queues leave links unused."""
        run = self._run
        (run.busy_queues.add if count else run.busy_queues.discard)(self._queue)
        if self._context.old_form_seen:
            # Another link would only receive what has to wait for this one.
            return False
        return count >= self._worker.batch_size > 1 and len(run.busy_queues) + run.extra_links < run.max_links

    async def _help(self, worker: QueueWorker) -> None:
        """Work over another link as long as both receive full batches."""
        self._run.extra_links += 1
        try:
            while await worker.step(wait=_SHORT_WAIT):
                self._run.report_progress()
                if worker.waiting_for_destination or worker.received_few or worker.held_back or self._context.paused:
                    break
                if self._is_near_end:
                    break
        except ServiceError as error:
            _log.warning("syphon queue=%s, one more link: %s", self._queue, error)
        finally:
            self._run.extra_links -= 1
            await worker.detach()

    async def _step(self, wait: float) -> int:
        """Move one batch; record a failure of the queue itself."""
        done, now = self._counters.done, self._context.clock.now
        started = now()
        if self._worker.waiting_for_destination:
            wait = _SHORT_WAIT
        count = 0
        try:
            count = await self._worker.step(wait=wait)
            self._long_poll_expired = count == 0 and now() - started > wait / 2 > _SHORT_WAIT
            if self._long_poll_expired:
                # A link that died silently also receives nothing; a new link detects that.
                await self._worker.detach()
        except ServiceError as error:
            self._retry_delay = self._failures.record(error)
            self._long_poll_expired = False
        else:
            self._failures.record_success()
        self._record_step(count, moved=self._counters.done > done)
        self._run.report_progress()
        self._run.raise_if_all_failed(self._context)
        return count

    def _record_step(self, count: int, *, moved: bool) -> None:
        self._received_any = bool(count)
        self._expects_more = moved and not self._worker.received_few
        if moved:
            self._last_moved_at, self._idle_steps, self._all_received = self._context.clock.now(), 0, False
        else:
            self._idle_steps += 1
            self._skipped += count

    async def _is_finished(self) -> bool:
        if self._run.stopped.is_set():
            return True
        if not self._is_near_end:
            return False
        if self._failures.given_up:
            return True
        if self._counters.done > self._last_done:
            # By another link to this queue, too.
            self._last_done, self._last_moved_at = self._counters.done, self._context.clock.now()
        readable = True
        try:
            workable = await self._find_workable()
        except ServiceError:
            # A peek also fails for a message that cannot be decoded; the next step reports a failing queue.
            readable, workable = False, True
        if workable and self._context.clock.now() - self._last_moved_at <= _MAX_WAIT_FOR_LOCKS:
            return False
        if not readable:
            self._counters.left = max(1, self._counters.left)
        return True

    async def _find_workable(self) -> bool:
        """Peek for a message that could be moved, first where one was found last."""
        if self._first_workable > 1 and await self._find_workable_from_last():
            return True
        self._first_workable = 1
        return await self._find_workable_from_last()

    async def _find_workable_from_last(self) -> bool:
        """Peek from the last found message on, and count at least one page of what is left."""
        left = 0
        async for page in self._pages():
            left += sum(map(self._surveyor.is_selected, page))
            self._counters.left = left
            found = next((each for each in page if self._surveyor.is_workable(each, self._worker.skipped)), None)
            if found is not None:
                if found.sequence_number != self._last_found:
                    # Another syphon moved what was first: while one makes progress, this one does not give up.
                    self._last_found, self._last_moved_at = found.sequence_number, self._context.clock.now()
                self._first_workable = found.sequence_number
                return True
        self._counters.left = left
        return False

    async def _pages(self) -> AsyncIterator[list[Any]]:
        """Yield the messages from the last found one on; a first small page is usually enough."""
        if self._context.redrive:
            # Dead letters that cannot be decoded stay, so that every peek that meets one would fail.
            async for page in self._worker.readable_pages(self._first_workable):
                yield page
            return
        cursor, page_size = self._first_workable, _FIRST_PAGE_SIZE
        while page := await self._worker.peek(cursor, max_messages=page_size):
            yield page
            cursor, page_size = page[-1].sequence_number + 1, self._context.max_batch_messages

    async def _wait_while_paused(self) -> None:
        if not self._run.resumed.is_set():
            await self._worker.detach()
            await self._run.resumed.wait()

    async def _pause_if_idle(self) -> None:
        """Pause if the last step moved nothing: until a destination's backoff ends, at most 30 s."""
        if self._failures.count:
            if not self._failures.given_up:
                await self._sleep(self._retry_delay)
            return
        if not self._idle_steps or self._long_poll_expired:
            return
        now = self._context.clock.now
        next_retry = self._context.backoff.next_retry(now=now(), waited_for=self._worker.waiting_for_destination)
        if self._run.continuous and next_retry is not None and not self._received_any:
            self._all_received = True
        skipping = self._received_any and not self._worker.held_back and not self._all_received
        if skipping and self._skipped < _MAX_SKIPPED:
            return
        self._skipped = 0
        delay = backoff_delay(self._idle_steps, initial_delay=self._run.initial_delay)
        if next_retry is None:
            delay = min(delay, _MAX_PAUSE_FOR_LOCKS)
        else:
            delay = max(_MIN_PAUSE, min(delay, next_retry - now(), _MAX_PAUSE))
        if next_retry is not None or self._received_any or self._idle_steps > 1:
            await self._sleep(delay)
        while self._all_received and next_retry is not None and (remaining := next_retry - now()) > 0:
            if self._run.stopped.is_set() or await self._has_new_message():
                break
            await self._sleep(min(remaining, _MAX_PAUSE))

    async def _sleep(self, seconds: float) -> None:
        if seconds > _MAX_PAUSE_WITH_LOCKS:
            await self._worker.detach()
        await sleep_until_set(self._context.clock, seconds, self._run.stopped)

    async def _has_new_message(self) -> bool:
        """Peek for messages enqueued since all were received: a receive would return the old ones first."""
        try:
            page = await self._worker.peek(self._worker.highest_sequence_number + 1, max_messages=1)
        except ServiceError:
            return True  # the next step reports the failure
        if page:
            self._worker.highest_sequence_number = page[-1].sequence_number
            self._all_received = False
        return bool(page)
