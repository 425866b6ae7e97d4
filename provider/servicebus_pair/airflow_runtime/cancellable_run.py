"""Runs coroutines inside synchronous Airflow tasks, so that a kill, a time limit or a dead supervisor cancels them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Final, TypeVar

from servicebus_pair.airflow_runtime.airflow_version import supervisor_comms
from servicebus_pair.core import SyncBridge
from servicebus_pair.core.model import get_logger

_log = get_logger(__name__)
_SUPERVISOR_POLL_SECONDS: Final = 1.0

ResultT = TypeVar("ResultT")


class CancellableRun:
    """Runs the coroutines of one task; :meth:`cancel` may be called from a signal handler."""

    def __init__(self) -> None:
        self._session: RunSession | None = None

    def run(self, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run one coroutine on a new event loop.

        A time limit that interrupts the caller cancels the coroutine, and so does the death of Airflow's supervisor.
        In every case its ``async with`` blocks are closed before this method returns.

        :raises concurrent.futures.CancelledError: :meth:`cancel` was called.
        """
        with self.session() as session:
            return session.run(coroutine)

    @contextmanager
    def session(self) -> Iterator[RunSession]:
        """Run several coroutines on one event loop that stays alive between them."""
        with SyncBridge() as bridge:
            self._session = RunSession(bridge)
            try:
                yield self._session
            finally:
                self._session = None

    def cancel(self) -> None:
        """Cancel the running session, if there is one."""
        if self._session is not None:
            self._session.cancel()


class RunSession:
    """Runs coroutines one after another on one event loop; made by :meth:`CancellableRun.session`."""

    def __init__(self, bridge: SyncBridge) -> None:
        self._bridge = bridge
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self._cancelled = False

    def run(self, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run ``coroutine`` and return its result.

        :raises concurrent.futures.CancelledError: the session was cancelled, now or earlier.
        """
        if self._cancelled:
            coroutine.close()
            raise CancelledError

        async def cancellable() -> ResultT:
            task = asyncio.current_task()
            if task is not None:
                self._running = asyncio.get_running_loop(), task
            try:
                async with cancel_when_orphaned():
                    return await coroutine
            finally:
                self._running = None

        return self._bridge.run(cancellable())

    @contextmanager
    def enter(self, manager: AbstractAsyncContextManager[ResultT]) -> Iterator[ResultT]:
        """Keep an asynchronous context manager open for the length of a ``with`` block."""
        value = self.run(manager.__aenter__())
        try:
            yield value
        finally:
            # Through the bridge, because a cancelled session must still close what it opened. The manager does not
            # learn which exception ended the block: the exception belongs to the caller.
            self._bridge.run(_exit(manager))

    def cancel(self) -> None:
        """Cancel the running coroutine and refuse all later ones."""
        self._cancelled = True
        if self._running is not None:
            loop, task = self._running
            loop.call_soon_threadsafe(task.cancel)


async def _exit(manager: AbstractAsyncContextManager[Any]) -> None:
    await manager.__aexit__(None, None, None)


@asynccontextmanager
async def cancel_when_orphaned() -> AsyncIterator[None]:
    """Cancel the block when the supervisor of this task's process has died.

    Airflow's supervisor sends the task's heartbeats and receives its result. When it is killed, its child process
    keeps working next to the following try, for as long as the work lasts (measured, Airflow 3.3.2). Outside a
    supervised task, as in ``dag.test``, there is nothing to watch.

    :raises asyncio.CancelledError: in the block, within about two seconds of the supervisor's death.
    """
    task, supervisor = asyncio.current_task(), _supervisor_pid()
    if task is None or supervisor is None:
        yield
        return

    async def watch() -> None:
        # A process is not notified when its parent dies, so it has to poll.
        while os.getppid() == supervisor:  # noqa: ASYNC110
            await asyncio.sleep(_SUPERVISOR_POLL_SECONDS)
        _log.warning("the supervisor (process %d) has died: cancelling this try; the next one continues", supervisor)
        task.cancel()

    watcher = asyncio.create_task(watch(), name="watch supervisor")
    try:
        yield
    finally:
        watcher.cancel()


def _supervisor_pid() -> int | None:
    # dag.test runs its supervisor in this process, and that one has no asynchronous interface.
    return os.getppid() if hasattr(supervisor_comms(), "asend") else None
