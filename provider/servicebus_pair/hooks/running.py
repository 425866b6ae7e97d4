"""Asynchronous work inside a synchronous task, that a kill can end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from servicebus_pair.core.blocking import Bridge

__all__ = ["CancellableRun"]

ResultT = TypeVar("ResultT")


class CancellableRun:
    """Runs one coroutine at a time for a task; :meth:`cancel` may be called from a signal handler."""

    def __init__(self) -> None:
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None

    def run(self, call: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run ``call`` to its end on an event loop of its own.

        A time limit that interrupts the caller cancels it too. However it ends, what it opened in
        ``async with`` blocks is closed before this returns.

        :raises concurrent.futures.CancelledError: :meth:`cancel` was called.
        """

        async def watched() -> ResultT:
            task = asyncio.current_task()
            if task is not None:
                self._running = asyncio.get_running_loop(), task
            try:
                return await call
            finally:
                self._running = None

        with Bridge() as bridge:
            return bridge.run(watched())

    def cancel(self) -> None:
        """Cancel what runs, if anything does."""
        if self._running is not None:
            loop, task = self._running
            loop.call_soon_threadsafe(task.cancel)
