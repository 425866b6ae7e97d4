"""Asynchronous work inside a synchronous task, that a kill can end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import Any, TypeVar

from servicebus_pair.core.blocking import Bridge
from servicebus_pair.hooks.supervision import while_supervised

__all__ = ["CancellableRun", "RunningCalls"]

ResultT = TypeVar("ResultT")


class RunningCalls:
    """Runs coroutines of a task one after another, on one event loop that goes on between them."""

    def __init__(self, bridge: Bridge) -> None:
        self._bridge = bridge
        self._current: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None
        self._cancelled = False

    def run(self, call: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run ``call`` to its end.

        :raises concurrent.futures.CancelledError: it was cancelled, or an earlier kill came between two calls.
        """
        if self._cancelled:
            call.close()
            raise CancelledError

        async def watched() -> ResultT:
            task = asyncio.current_task()
            if task is not None:
                self._current = asyncio.get_running_loop(), task
            try:
                async with while_supervised():
                    return await call
            finally:
                self._current = None

        return self._bridge.run(watched())

    @contextmanager
    def opened(self, manager: AbstractAsyncContextManager[ResultT]) -> Iterator[ResultT]:
        """Keep ``manager`` open for the length of a ``with`` block; it is closed however the block ends."""
        value = self.run(manager.__aenter__())
        try:
            yield value
        finally:
            # After a kill too; and what ended the block is the caller's business, not the manager's.
            self._bridge.run(_left(manager))

    def cancel(self) -> None:
        """Cancel the call that runs; when none does, let none begin."""
        self._cancelled = True
        if self._current is not None:
            loop, task = self._current
            loop.call_soon_threadsafe(task.cancel)


class CancellableRun:
    """Runs the coroutines of a task; :meth:`cancel` may be called from a signal handler."""

    def __init__(self) -> None:
        self._calls: RunningCalls | None = None

    def run(self, call: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run ``call`` to its end on an event loop of its own.

        A time limit that interrupts the caller cancels it too, and so does the end of Airflow's
        supervisor. However it ends, what it opened in ``async with`` blocks is closed before this returns.

        :raises concurrent.futures.CancelledError: :meth:`cancel` was called.
        """
        with self.calls() as calls:
            return calls.run(call)

    @contextmanager
    def calls(self) -> Iterator[RunningCalls]:
        """Run several coroutines on one event loop; a kill ends the one that runs and lets none follow."""
        with Bridge() as bridge:
            self._calls = RunningCalls(bridge)
            try:
                yield self._calls
            finally:
                self._calls = None

    def cancel(self) -> None:
        """Cancel what runs, if anything does."""
        if self._calls is not None:
            self._calls.cancel()


async def _left(manager: AbstractAsyncContextManager[Any]) -> None:
    await manager.__aexit__(None, None, None)
