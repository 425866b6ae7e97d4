"""The one bridge from synchronous code to the asynchronous core.

A bridge owns an event loop in a thread of its own, so that pings and closing go on between calls.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

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
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    async def _cancel_rest(self) -> None:
        rest = asyncio.all_tasks(self._loop) - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)
        await self._loop.shutdown_asyncgens()
