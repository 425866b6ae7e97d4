"""Calls to a health store that may hang: one at a time, so that it costs one thread at most.

That is a daemon thread, also for a store that uses ``asyncio.to_thread``: a thread of the event loop's pool would be
missing elsewhere, and would hold up the exit of the process.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from math import inf
from typing import Any, Final, TypeVar

from servicebus_pair.core.model.daemon_thread import HANG_SECONDS, DaemonThread
from servicebus_pair.core.model.health_state import EntityHealth
from servicebus_pair.core.model.interfaces import BlockingHealthStore, HealthStore

ResultT = TypeVar("ResultT")
_CLOSE_SECONDS: Final = 0.5
# The thread for blocking calls of the store that runs in this context.
_thread: ContextVar[DaemonThread | None] = ContextVar("thread of the health store", default=None)
_REDIRECTED: Final = "_servicebus_pair_redirected"


class StoreCalls:
    """Calls the methods of ``store``, one after the other.

    A call is never cancelled: it may run in a thread, which cancelling would not end. It counts as hanging after
    ``HANG_SECONDS``; from then on, all calls fail at once until it returns.
    """

    def __init__(self, store: HealthStore | BlockingHealthStore) -> None:
        self._store: Any = store
        self._thread = DaemonThread("health store")
        self._running: asyncio.Task[Any] | None = None
        self._hangs_at = inf

    async def load(self, entity: str) -> EntityHealth | None:
        """Return the stored health. :raises TimeoutError: this call or one before it hangs."""
        return await self._run(lambda: self._call(self._store.load, entity))

    async def save(self, entity: str, health: EntityHealth) -> None:
        """Store ``health``. :raises TimeoutError: this call or one before it hangs."""
        await self._run(lambda: self._call(self._store.save, entity, health))

    async def close(self) -> None:
        """Cancel the call in progress."""
        running, self._running = self._running, None
        if running is not None and not running.done():
            running.cancel()
            await asyncio.wait({running}, timeout=_CLOSE_SECONDS)

    async def _call(self, method: Callable[..., Any], *args: Any) -> Any:
        if inspect.iscoroutinefunction(method):
            _redirect_pool(asyncio.get_running_loop())
            _thread.set(self._thread)
            return await method(*args)
        result = await self._thread.call(method, *args)
        return await result if inspect.isawaitable(result) else result

    async def _run(self, call: Callable[[], Awaitable[ResultT]]) -> ResultT:
        while self._running is not None and not self._running.done():
            await self._wait_for(self._running)
        task = asyncio.ensure_future(call())
        self._running = task
        self._hangs_at = asyncio.get_running_loop().time() + HANG_SECONDS
        task.add_done_callback(_retrieve)
        await self._wait_for(task)
        return task.result()

    async def _wait_for(self, call: asyncio.Task[Any]) -> None:
        await asyncio.wait({call}, timeout=self._hangs_at - asyncio.get_running_loop().time())
        if not call.done() and call is self._running:
            raise TimeoutError(f"the health store has not answered for {HANG_SECONDS:g} s or more")


def _redirect_pool(loop: asyncio.AbstractEventLoop) -> None:
    """Make ``asyncio.to_thread``, and whatever else uses the pool of ``loop``, use a store's thread inside a store."""
    original = loop.run_in_executor
    if hasattr(original, _REDIRECTED):
        return

    def run_in_executor(executor: Any, function: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        thread = _thread.get() if executor is None else None
        if thread is None:
            return original(executor, function, *args)
        thread.raise_if_hanging()
        return original(thread, function, *args)

    setattr(run_in_executor, _REDIRECTED, True)
    loop.run_in_executor = run_in_executor  # type: ignore[method-assign, assignment]


def _retrieve(call: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a call that is no longer awaited, so that asyncio does not log it."""
    if not call.cancelled():
        call.exception()
