"""Run the asynchronous core from synchronous code.

A bridge runs an event loop in its own thread, so that pings and other tasks continue between calls.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Generic, Self, TypeVar

from servicebus_pair.core.model.errors import PairClosedError

ResultT = TypeVar("ResultT")


class SyncBridge:
    """Runs coroutines for synchronous callers; a context manager.

    All calls of one pair (opening, sending, closing) must go through the same bridge.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="servicebus-pair", daemon=True)
        self._lock = threading.Lock()
        self._is_open = False
        self._futures: set[Future[Any] | None] = set()

    def __enter__(self) -> Self:
        self._thread.start()
        self._is_open = True
        return self

    def __exit__(self, *_: object) -> None:
        if os.getpid() != self._process:
            return  # the thread did not survive the fork, and the loop is that of the parent
        with self._lock:
            self._is_open = False
        try:
            asyncio.run_coroutine_threadsafe(self._cancel_tasks(), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            # An interruption may have ended this before the calls: their callers must not wait for ever.
            with self._lock:
                unfinished = tuple(filter(None, self._futures))
            for future in unfinished:
                future.cancel()

    def run(self, call: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run ``call`` and return its result or raise its exception.

        An interruption of the caller (Ctrl-C, a task timeout) cancels the call first.

        :raises PairClosedError: the bridge is not open in this process; the call was not started.
        :raises concurrent.futures.CancelledError: the bridge was closed during the call.
        """
        if os.getpid() != self._process:
            call.close()
            raise PairClosedError(
                f"the bridge was created in process {self._process} and is not open in process {os.getpid()}: "
                "open a bridge and a pair in each process, after the fork"
            )
        running = _Running(call)
        future: Future[ResultT] | None = None
        try:
            future = self._submit(running)
            return future.result()
        except BaseException as error:
            # Not through the future: the interruption may arrive before it exists.
            with suppress(RuntimeError):  # the loop is closed, and nothing runs in it
                self._loop.call_soon_threadsafe(running.cancel)
            if isinstance(error, CancelledError) and not running.started:
                running.close()
                raise _not_open() from None
            raise
        finally:
            with self._lock:
                self._futures -= {future}

    def _submit(self, running: _Running[ResultT]) -> Future[ResultT]:
        # Under the lock, so that the call reaches the loop before __exit__ cancels what runs there.
        with self._lock:
            if not self._is_open:
                running.close()
                raise _not_open()
            future = asyncio.run_coroutine_threadsafe(running.wait(), self._loop)
            self._futures.add(future)
            return future

    async def _cancel_tasks(self) -> None:
        # Those that end may have started others.
        while tasks := asyncio.all_tasks(self._loop) - {asyncio.current_task()}:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._loop.shutdown_asyncgens()


def _not_open() -> PairClosedError:
    return PairClosedError("the bridge is not open: run calls inside `with SyncBridge() as bridge:`")


class _Running(Generic[ResultT]):
    """A call in progress; ``wait`` and ``cancel`` run in the loop's thread."""

    def __init__(self, call: Coroutine[Any, Any, ResultT]) -> None:
        self._call = call
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False

    @property
    def started(self) -> bool:
        return self._task is not None

    async def wait(self) -> ResultT:
        self._task = asyncio.current_task()
        if self._cancelled:
            self.close()
            raise asyncio.CancelledError
        return await self._call

    def cancel(self) -> None:
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()

    def close(self) -> None:
        """Discard a call that was not started."""
        self._call.close()
