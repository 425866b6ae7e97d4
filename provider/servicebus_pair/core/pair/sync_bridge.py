"""Run the asynchronous core from synchronous code.

A bridge runs an event loop in its own thread, so that pings and other tasks continue between calls.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, Generic, Self, TypeVar

from servicebus_pair.core.model.errors import PairClosedError

__all__ = ["SyncBridge"]

ResultT = TypeVar("ResultT")


class SyncBridge:
    """Runs coroutines for synchronous callers; a context manager.

    All calls of one pair (opening, sending, closing) must go through the same bridge.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="servicebus-pair", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._cancel_tasks())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, call: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run ``call`` and return its result or raise its exception.

        An interruption of the caller (Ctrl-C, a task timeout) cancels the call first.

        :raises PairClosedError: the bridge is not open; the call was not started.
        """
        if not self._thread.is_alive():
            call.close()
            raise PairClosedError("the bridge is not open: run calls inside `with SyncBridge() as bridge:`")
        running = _Running(call)
        try:
            return asyncio.run_coroutine_threadsafe(running.wait(), self._loop).result()
        except BaseException:
            # Not through the future: the interruption may arrive before it exists.
            self._loop.call_soon_threadsafe(running.cancel)
            raise

    async def _cancel_tasks(self) -> None:
        tasks = asyncio.all_tasks(self._loop) - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_asyncgens()


class _Running(Generic[ResultT]):
    """A call in progress; both methods run in the loop's thread."""

    def __init__(self, call: Coroutine[Any, Any, ResultT]) -> None:
        self._call = call
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False

    async def wait(self) -> ResultT:
        self._task = asyncio.current_task()
        if self._cancelled:
            self._call.close()
            raise asyncio.CancelledError
        return await self._call

    def cancel(self) -> None:
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()
