"""The drain of one backlog queue that requires sessions: which sessions to accept, when to hold one, when to stop.

There is one session for each entity. While an entity fails, its session is held, so that the broker offers the others;
only when many are held are some given back, and offered again after the others.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Final

from servicebus_pair.core.model.errors import ServiceError, SessionLockedError
from servicebus_pair.core.model.interfaces import sleep_until_set
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.syphon.batch_sender import DrainCounters
from servicebus_pair.core.syphon.drain_context import CALL_TIMEOUT, DrainContext
from servicebus_pair.core.syphon.drain_run import DrainRun
from servicebus_pair.core.syphon.policies.destination_backoff import MAX_CONSECUTIVE_FAILURES, backoff_delay
from servicebus_pair.core.syphon.ports import SessionSource
from servicebus_pair.core.syphon.queue_failures import QueueFailures
from servicebus_pair.core.syphon.session_worker import SessionWorker

_log = get_logger(__name__)
# All times are seconds. How long a session that was emptied is kept for more messages.
_SHORT_WAIT: Final = 0.3
# How long the service is asked to wait for a session, unless the drain is continuous: at first, and once some were
# listed although it found none.
_FIRST_ACCEPT_WAIT: Final = 0.3
_ACCEPT_WAIT: Final = 1.0
# Locks are renewed at half of their duration, so that this is often enough.
_HOLD_INTERVAL: Final = 10.0
# Sessions that are held for failing destinations, over all queues; each has a link.
_MAX_HELD: Final = 100
# While other sessions wait for one to end, it is given back after so long.
_MAX_TURN: Final = 60.0
# Without progress for so long, no session will become available: the lock of a syphon that died has ended.
_MAX_WAIT_FOR_LOCKS: Final = 65.0
_MAX_PAUSE_FOR_LOCKS: Final = 5.0
_MAX_PAUSE: Final = 30.0
_MIN_PAUSE: Final = 0.05
# How long the sessions may take to end by themselves after a stop.
_STOP_GRACE: Final = 1.5


class SessionQueueDrain:
    """Drains one backlog queue that requires sessions, several sessions at a time.

    With a selection of entities, their sessions are accepted by id, again and again; else the broker chooses.
    """

    def __init__(self, context: DrainContext, run: DrainRun, queue: str, *, counters: DrainCounters) -> None:
        self._context = context
        self._run = run
        self._queue = queue
        self._counters = counters
        self._failures = QueueFailures(run, queue, counters)
        self._sessions: dict[asyncio.Task[None], str] = {}
        # What was received of sessions that are held for abandoned destinations, by session id.
        self._abandoned: dict[str, int] = {}
        # The same for those that were given back, because too many are held, or they are lost each time; the broker
        # offers them again.
        self._given_up: dict[str, int] = {}
        # Consecutive failures of each session, by id.
        self._losses: Counter[str] = Counter()
        # Messages that the primary has accepted, and that could not be completed.
        self._accepted: set[tuple[int, str]] = set()
        self._ended = asyncio.Event()
        self._last_progress_at = context.clock.now()
        self._last_done = counters.done
        self._last_count: int | None = None
        self._last_listed: set[str] = set()
        self._pauses = 0
        # With a selection: the sessions that this pass has still to visit.
        self._unvisited: list[str] = []

    async def work(self) -> None:
        """Drain the queue until it is empty, given up or stopped."""
        grace = _STOP_GRACE
        try:
            while not self._run.stopped.is_set():
                await self._run.resumed.wait()
                if not await self._visit_session() and await self._is_finished():
                    break
        except asyncio.CancelledError:
            grace = 0.0
            raise
        finally:
            # Releasing sessions is bounded in time, and must not be cancelled halfway.
            self._run.finishing.add(asyncio.current_task())
            self._ended.set()
            await self._end_sessions(grace)

    async def _end_sessions(self, grace: float) -> None:
        sessions = set(self._sessions)
        if sessions and grace:
            await asyncio.wait(sessions, timeout=grace)
        for session in sessions:
            session.cancel()
        await asyncio.gather(*sessions, return_exceptions=True)

    async def _visit_session(self) -> bool:
        """Accept a session and serve it in a task; return False if there was none."""
        try:
            source, session_id = await self._accept()
        except ServiceError as error:
            await self._sleep(self._failures.record(error))
            self._run.report_progress()
            self._run.raise_if_all_failed(self._context)
            return False
        self._failures.record_success()
        if source is None:
            return False
        if session_id in self._given_up:
            await source.close()
            return False
        serving = asyncio.create_task(self._serve(source, session_id), name="syphon a session")
        self._sessions[serving] = session_id
        serving.add_done_callback(self._sessions.pop)
        await asyncio.sleep(0)
        while self._run.is_full and not self._run.stopped.is_set():
            await self._wait_for_any_session(_SHORT_WAIT)
        return True

    async def _accept(self) -> tuple[SessionSource | None, str]:
        """Return a session and its id, or ``None`` if none is available.

        :raises ServiceError: the queue cannot be read.
        """
        if self._context.selection.entities is None:
            short = _FIRST_ACCEPT_WAIT if not self._pauses else _ACCEPT_WAIT
            return await self._accept_one(wait=self._run.long_poll if self._run.continuous else short)
        if not self._unvisited:
            self._unvisited = await self._context.list_sessions(self._queue)
        while self._unvisited:
            session_id = self._unvisited.pop()
            if session_id in self._sessions.values():
                continue
            with suppress(SessionLockedError):
                return await self._accept_one(wait=_ACCEPT_WAIT, session_id=session_id)
        return None, ""

    async def _accept_one(self, *, wait: float, session_id: str | None = None) -> tuple[SessionSource | None, str]:
        source = self._context.session_link(self._queue, wait=wait, session_id=session_id)
        accepted: str | None = None
        try:
            accepted = await source.accept(timeout=CALL_TIMEOUT)
        finally:
            if accepted is None:
                await source.close()
        return (None, "") if accepted is None else (source, accepted)

    async def _serve(self, source: SessionSource, session_id: str) -> None:
        """Move the messages of one session until it has none, or is lost, or others have waited long enough."""
        worker = SessionWorker(self._context, self._queue, source, counters=self._counters, accepted=self._accepted)
        started = self._context.clock.now()
        self._run.active_sessions += 1
        try:
            while not self._context.paused and await self._step(worker):
                self._run.report_progress()
                self._run.raise_if_all_failed(self._context)
                if worker.not_selected or (worker.blocked_by is not None and not await self._hold(worker, session_id)):
                    break
                if self._run.is_full and self._context.clock.now() - started > _MAX_TURN:
                    break
        except ServiceError as error:
            self._losses[session_id] += 1
            if self._losses[session_id] >= MAX_CONSECUTIVE_FAILURES and not self._run.continuous:
                # It has at least one message: perhaps the one that the SDK cannot decode through its public interface.
                self._given_up[session_id] = 1
                self._counters.failures[f"{self._queue} session {session_id}"] = str(error)
            delay = min(backoff_delay(self._losses[session_id], initial_delay=self._run.initial_delay), _MAX_PAUSE)
            _log.warning("syphon queue=%s session=%s retry_in=%.0fs: %s", self._queue, session_id, delay, error)
            # Before it is given back, or it would be accepted again at once.
            await self._sleep(delay)
        except Exception as error:  # noqa: BLE001 - raised by the drain
            self._run.fail(error)
        finally:
            self._run.active_sessions -= 1
            if worker.has_completed:
                self._losses.pop(session_id, None)
            worker.close()
            await source.close()

    async def _step(self, worker: SessionWorker) -> bool:
        """Move one batch when it is this session's turn."""
        turns = self._run.session_turns
        while True:
            try:
                async with asyncio.timeout(_HOLD_INTERVAL):
                    await turns.acquire()
                break
            except TimeoutError:
                await worker.keep_lock()
        try:
            return await worker.step(wait=_SHORT_WAIT)
        finally:
            turns.release()

    async def _hold(self, worker: SessionWorker, session_id: str) -> bool:
        """Keep the session while its destination is in backoff; return False to give it back."""
        entity, backoff = str(worker.blocked_by), self._context.backoff
        if self._run.held_sessions >= _MAX_HELD:
            if backoff.is_abandoned(entity) and not self._run.continuous:
                self._given_up[session_id] = len(worker.waiting)
            await self._sleep(1.0)
            return False
        self._run.active_sessions -= 1
        self._run.held_sessions += 1
        try:
            while not self._context.paused and not self._ended.is_set():
                now = self._context.clock.now()
                if backoff.is_abandoned(entity) and not self._run.continuous:
                    self._abandoned[session_id] = len(worker.waiting)
                    await self._sleep(_HOLD_INTERVAL, self._ended)
                elif backoff.is_due(entity, now=now):
                    return True
                else:
                    due = backoff.retry_at(entity) or now
                    await self._sleep(max(_MIN_PAUSE, min(due - now, _HOLD_INTERVAL)), self._ended)
                await worker.keep_lock()
            return False
        finally:
            self._run.held_sessions -= 1
            self._run.active_sessions += 1
            self._abandoned.pop(session_id, None)

    async def _is_finished(self) -> bool:
        """Return whether nothing is left that this drain could move; else pause until it may be worth another look."""
        waited = self._is_serving
        if waited:
            await self._wait_for_any_session(_MAX_PAUSE_FOR_LOCKS)
            # When the last one has ended, listing what is left is quicker than to wait for another one.
            if self._is_serving or self._run.continuous:
                return False
        if self._failures.given_up:
            return True
        moved = self._note_progress()
        if self._run.continuous:
            if self._context.selection.entities is not None:
                await self._pause(_MAX_PAUSE, reset=moved)
            return False
        if await self._is_empty() or self._context.clock.now() - self._last_progress_at > _MAX_WAIT_FOR_LOCKS:
            return True
        if not waited:
            await self._pause(_MAX_PAUSE_FOR_LOCKS, reset=moved)
        return False

    @property
    def _is_serving(self) -> bool:
        return any(session_id not in self._abandoned for session_id in self._sessions.values())

    async def _is_empty(self) -> bool:
        """Return whether only sessions for abandoned destinations have messages, and count what is left.

        Without the right to count, at least so many are left.

        A session that cannot be accepted is locked by another syphon, which may have died.
        """
        try:
            listed = set(await self._context.list_sessions(self._queue)) - set(self._abandoned) - set(self._given_up)
        except ServiceError as error:
            _log.info("the sessions of queue=%s cannot be listed: %s", self._queue, error)
            return False
        self._counters.left = sum(self._abandoned.values()) + sum(self._given_up.values()) + len(listed)
        if listed != self._last_listed:
            self._last_listed, self._last_progress_at = listed, self._context.clock.now()
        if self._counters.left and self._context.selection.entities is None:
            count = await self._run.count(self._queue)
            if count is not None:
                self._counters.left = count
                if self._last_count is not None and count < self._last_count:
                    self._last_progress_at = self._context.clock.now()
            self._last_count = count
        return not listed

    def _note_progress(self) -> bool:
        if self._counters.done == self._last_done:
            return False
        self._last_done, self._last_progress_at = self._counters.done, self._context.clock.now()
        return True

    async def _wait_for_any_session(self, seconds: float) -> None:
        if self._sessions:
            await asyncio.wait(set(self._sessions), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.sleep(seconds)

    async def _pause(self, longest: float, *, reset: bool) -> None:
        self._pauses = 0 if reset else self._pauses + 1
        await self._sleep(min(backoff_delay(self._pauses + 1, initial_delay=_ACCEPT_WAIT), longest))

    async def _sleep(self, seconds: float, *events: asyncio.Event) -> None:
        """Sleep, but not beyond a stop of the syphon, or one of ``events``."""
        await sleep_until_set(self._context.clock, seconds, self._run.stopped, *events)
