"""The one bridge from synchronous code to the asynchronous core.

A bridge owns an event loop in a thread of its own, so that pings and closing go on between calls.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from servicebus_pair.core.errors import PairClosedError

__all__ = ["Bridge"]

ResultT = TypeVar("ResultT")


class Bridge:
    """Runs coroutines of the core for synchronous callers; a context manager.

    Everything that belongs to one pair (opening, sending, closing) goes through the same bridge.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="servicebus-pair", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.run(self._cancel_rest())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, call: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run ``call`` to its end and answer its result, or raise what it raised.

        An interruption of the caller (Ctrl-C, a task's time limit) cancels the call first.

        :raises PairClosedError: the bridge is not open; the call was not started.
        """
        if not self._thread.is_alive():
            call.close()
            raise PairClosedError("the bridge is not open: run calls inside `with Bridge() as bridge:`")
        running = _Running(call)
        try:
            return asyncio.run_coroutine_threadsafe(running.watched(), self._loop).result()
        except BaseException:
            # Through the loop, not the future: an interruption may come before there is one.
            self._loop.call_soon_threadsafe(running.cancel)
            raise

    async def _cancel_rest(self) -> None:
        rest = asyncio.all_tasks(self._loop) - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await self._loop.shutdown_asyncgens()


class _Running(Generic[ResultT]):
    """One call on the loop; both methods run in the loop's thread."""

    def __init__(self, call: Coroutine[Any, Any, ResultT]) -> None:
        self._call = call
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False

    async def watched(self) -> ResultT:
        self._task = asyncio.current_task()
        if self._cancelled:
            self._call.close()
            raise asyncio.CancelledError
        return await self._call

    def cancel(self) -> None:
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()
