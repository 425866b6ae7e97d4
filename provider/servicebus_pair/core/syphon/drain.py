"""The syphon (SPEC section 6): drains the backlog queues into their destination entities on the primary.

Delivery is at least once: a message whose completion is not confirmed may be delivered again, and is counted as a
possible duplicate. Several syphons may run at once, in independent processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final

from servicebus_pair.core.model.errors import ServiceError
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.model.results import DrainReport, Progress
from servicebus_pair.core.syphon.batch_sender import DrainCounters
from servicebus_pair.core.syphon.drain_context import DrainContext
from servicebus_pair.core.syphon.drain_run import DrainRun
from servicebus_pair.core.syphon.policies.destination_backoff import PermanentFailures
from servicebus_pair.core.syphon.queue_drain import QueueDrain
from servicebus_pair.core.syphon.session_drain import SessionQueueDrain
from servicebus_pair.core.syphon.spool_drain import SpoolDrain
from servicebus_pair.core.syphon.survey import BacklogSurvey, Surveyor

_log = get_logger(__name__)
# Busy links to backlog queues, over all queues; more gain nothing in one process.
MAX_LINKS: Final = 8
# Seconds for which a stop lets receives end by themselves and sends wait for their responses.
_STOP_GRACE: Final = 1.5


class Syphon:
    """Moves the messages of some backlog queues; created by ``NamespacePair.syphon``.

    Call :meth:`drain` or :meth:`run` once at a time.

    :param queues: paths of backlog queues on the secondary.
    :param initial_delay: seconds of the first backoff after a failure.
    :param long_poll: seconds of one receive of a continuous syphon.
    :param session_queues: those of ``queues`` that require sessions.
    :param spool: empties the spool too, if there is one.
    :param count: returns how many messages the queues hold; needs the right to manage the secondary.
    """

    def __init__(
        self,
        context: DrainContext,
        queues: Sequence[str],
        *,
        initial_delay: float,
        long_poll: float,
        count: Callable[[Collection[str]], Awaitable[int]],
        session_queues: Collection[str] = (),
        spool: SpoolDrain | None = None,
    ) -> None:
        self._context = context
        self._queues = tuple(queues)
        self._session_queues = frozenset(session_queues)
        self._spool = spool
        self._initial_delay = initial_delay
        self._long_poll = long_poll
        self._count = count
        self._started_at = context.clock.now()
        self._counters: dict[str, DrainCounters] = {}
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._stopped = asyncio.Event()

    @property
    def rate(self) -> float | None:
        """Maximum messages a second, over all queues; may be changed at any time. ``None`` for no limit."""
        return self._context.rate_limiter.rate

    @rate.setter
    def rate(self, rate: float | None) -> None:
        self._context.rate_limiter.rate = rate

    def pause(self) -> None:
        """Receive no more messages until :meth:`resume`; those already received are settled first."""
        self._context.paused = True
        self._resumed.clear()

    def resume(self) -> None:
        """Continue after :meth:`pause`."""
        self._context.paused = False
        self._resumed.set()

    def stop(self) -> None:
        """End :meth:`drain` or :meth:`run`: complete what the primary confirmed and abandon the other messages.

        Takes at most about six seconds, even if a namespace does not respond.
        """
        self._context.paused = True
        self._stopped.set()
        self._resumed.set()

    def report(self) -> DrainReport:
        """Return what was done so far."""
        total = sum((counters.report() for counters in self._counters.values()), DrainReport())
        total += DrainReport(failures=self._context.backoff.errors())
        return total if self._spool is None else total + self._spool.report()

    async def progress(self) -> Progress:
        """Return what was done and what remains; the latter takes one management call.

        Without the right to manage the secondary, ``remaining`` is unknown.
        """
        report = self.report()
        remaining: int | None = None
        try:
            remaining = await self._count(self._queues)
        except ServiceError as error:
            _log.info("what remains in the backlog cannot be counted: %s", error)
        return Progress(
            moved=report.moved_total,
            dead_lettered=sum(report.dead_lettered.values()),
            seconds=self._context.clock.now() - self._started_at,
            remaining=remaining,
        )

    async def survey(self, *, first_page: bool = False) -> BacklogSurvey:
        """Dry run: return what the queues hold for each destination, by peeking; no message is locked or moved.

        Sessions of queues that require them are accepted for a moment.

        :param first_page: only the oldest messages of each queue, ``syphon_batch_size`` of them.
        :raises ServiceError: a queue cannot be read.
        """
        self._context.check_owner()
        surveyor = Surveyor(self._context)
        surveys = (
            surveyor.survey_sessions(queue, count=self._count, first_page=first_page)
            if self._is_by_session(queue)
            else surveyor.survey(queue, first_page=first_page)
            for queue in self._queues
        )
        return BacklogSurvey.total(await asyncio.gather(*surveys))

    async def drain(self, *, progress: Callable[[DrainReport], None] | None = None) -> DrainReport:
        """Move messages until every queue is empty, or the remaining ones cannot be moved now.

        What the spool holds comes first, because some of it may go to the backlog.

        A queue counts as empty only if a peek finds nothing, because a frozen service also answers a receive with no
        messages. Messages that another syphon has locked are waited for, up to 65 s without progress. A failing
        destination or queue is retried after ``syphon_retry_interval``, doubling; it is abandoned after five
        consecutive failures, or at once if it has refused from the start (missing right or queue).

        A queue that requires sessions counts as empty when no session can be accepted and none is listed. Those that
        another syphon holds are waited for in the same way.

        :param progress: called after each step with the report so far.
        :raises AuthorizationError: the right Listen on a queue or Send on an entity is missing, and nothing was moved.
        :raises EntityNotFoundError: a backlog queue does not exist, and nothing was moved.
        """
        run = self._start(progress, continuous=False)
        await self._work(run)
        report = self.report()
        errors = [*run.queue_failures.errors.values(), *self._context.permanent_failures.errors.values()]
        if errors and not report.moved and not report.dead_lettered and not report.unspooled:
            raise errors[0]
        _log.info(
            "drain queues=%d moved=%d dead_lettered=%d unspooled=%d left=%d duplicates_possible=%d",
            len(self._queues),
            report.moved_total,
            sum(report.dead_lettered.values()),
            sum(report.unspooled.values()),
            report.left,
            report.duplicates_possible,
        )
        return report

    async def run(
        self, *, progress: Callable[[DrainReport], None] | None = None, wait_for_permissions: bool = False
    ) -> DrainReport:
        """Move messages until :meth:`stop`, polling each queue for ``syphon_long_poll``, and the spool at intervals.

        Cancelling the task stops it too; messages that the primary did not confirm are abandoned. A missing right or
        queue is an error at first, and is waited for once a queue and an entity have worked.

        :param progress: called after each step with the report so far.
        :param wait_for_permissions: wait for missing rights and queues from the start too.
        :raises AuthorizationError: the right Listen on every queue, or Send on every entity so far, is missing.
        :raises EntityNotFoundError: no backlog queue exists.
        """
        await self._work(self._start(progress, continuous=True, wait_for_permissions=wait_for_permissions))
        return self.report()

    def _start(
        self,
        progress: Callable[[DrainReport], None] | None,
        *,
        continuous: bool,
        wait_for_permissions: bool = False,
    ) -> DrainRun:
        def report_progress() -> None:
            if progress is not None:
                progress(self.report())

        self._context.check_owner()
        self._context.continuous = continuous
        self._context.permanent_failures = PermanentFailures()
        self._context.backoff.reset_permanent_failures()
        self._context.paused = not self._resumed.is_set()
        self._stopped.clear()
        self._started_at = self._context.clock.now()
        self._counters = {queue: DrainCounters() for queue in self._queues}
        if self._spool is not None:
            self._spool.start()
        return DrainRun(
            queue_count=len(self._counters),
            continuous=continuous,
            wait_for_permissions=wait_for_permissions,
            initial_delay=self._initial_delay,
            long_poll=self._long_poll,
            max_links=MAX_LINKS,
            resumed=self._resumed,
            stopped=self._stopped,
            report_progress=report_progress,
            count_messages=self._count,
        )

    def _is_by_session(self, queue: str) -> bool:
        # Dead letters have no sessions, whatever their queue requires.
        return queue in self._session_queues and not self._context.redrive

    def _drain_of(self, run: DrainRun, queue: str, counters: DrainCounters) -> QueueDrain | SessionQueueDrain:
        if self._is_by_session(queue):
            return SessionQueueDrain(self._context, run, queue, counters=counters)
        return QueueDrain(self._context, run, queue, counters=counters)

    async def _work(self, run: DrainRun) -> None:
        """Drain all queues; a stop cancels that, which completes what was confirmed and abandons the others."""
        stopped = asyncio.create_task(self._stopped.wait())
        tasks = self._spool_tasks(run)
        try:
            if not run.continuous:
                await _until_done(tasks, stopped=stopped, failed=run.failed)
            if not stopped.done():
                drains = {queue: self._drain_of(run, queue, each) for queue, each in self._counters.items()}
                tasks += [asyncio.create_task(drain.work(), name=f"syphon {queue}") for queue, drain in drains.items()]
                await _until_done(tasks, stopped=stopped, failed=run.failed)
        finally:
            stopped.cancel()
            run.failed.cancel()
            self.stop()
            # Cancelling a receive costs its link, without which its messages cannot be abandoned at once. A paused
            # receive ends by itself.
            if tasks:
                await asyncio.wait(tasks, timeout=_STOP_GRACE)
            for task in set(tasks) - run.finishing:
                task.cancel()
            for task in (await asyncio.wait(tasks))[0] if tasks else ():
                if not task.cancelled():
                    task.exception()  # retrieved to avoid a warning; the first one is already raised

    def _spool_tasks(self, run: DrainRun) -> list[asyncio.Task[None]]:
        if self._spool is None:
            return []
        work = self._spool.empty_continuously if run.continuous else self._spool.empty
        emptying = work(self._context, resumed=self._resumed, report_progress=run.report_progress)
        return [asyncio.create_task(emptying, name="syphon of the spool")]


async def _until_done(
    tasks: Collection[asyncio.Task[None]], *, stopped: asyncio.Future[Any], failed: asyncio.Future[None]
) -> None:
    """Wait for all tasks, or for ``stopped``. :raises Exception: of the first task that fails, or of ``failed``."""
    done: set[asyncio.Future[Any]] = set()
    while not stopped.done() and not set(tasks) <= done:
        waits: list[asyncio.Future[Any]] = [*(task for task in tasks if task not in done), stopped, failed]
        done |= (await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED))[0]
        for task in done - {stopped}:
            task.result()
