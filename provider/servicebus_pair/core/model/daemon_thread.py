"""Blocking calls in a daemon thread of their own, apart from the pool that ``asyncio.to_thread`` shares.

A call that hangs in that pool takes a thread from everybody, and the process cannot exit before it returns.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeAlias, TypeVar

ResultT = TypeVar("ResultT")
HANG_SECONDS: Final = 5.0
"""After this time a call counts as hanging."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A call, and how long it may take beyond ``HANG_SECONDS``."""

    work: Callable[[], Any]
    more_seconds: float = 0.0

    def __call__(self) -> Any:
        return self.work()


_Calls: TypeAlias = SimpleQueue[tuple[Future[Any], _Call]]


class DaemonThread(Executor):
    """Runs blocking calls one at a time in one daemon thread, which starts with the first call.

    While a call hangs, further calls fail at once instead of queueing up. The process can exit at any time.

    :param name: of the thread.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._thread: threading.Thread | None = None
        self._calls: _Calls = SimpleQueue()
        self._began: float | None = None
        self._more_seconds = 0.0

    async def call(self, function: Callable[..., ResultT], *args: Any, more_seconds: float = 0.0) -> ResultT:
        """Call ``function`` in the thread, with the caller's context variables.

        :param more_seconds: that the call may take beyond ``HANG_SECONDS``.
        :raises TimeoutError: this call or one before it hangs; a call that has started runs to its end nevertheless.
        """
        self.raise_if_hanging()
        work = _Call(partial(copy_context().run, function, *args), more_seconds)
        future: asyncio.Future[ResultT] = asyncio.get_running_loop().run_in_executor(self, work)
        try:
            while not future.done():
                left = HANG_SECONDS + self._more_seconds - self._running_seconds()
                await asyncio.wait({future}, timeout=min(HANG_SECONDS, left))
                if not future.done():
                    self.raise_if_hanging()
            return future.result()
        finally:
            future.cancel()

    def raise_if_hanging(self) -> None:
        """:raises TimeoutError: a call has been running for ``HANG_SECONDS`` or more, or for as long as it may."""
        limit = HANG_SECONDS + self._more_seconds
        if self._running_seconds() >= limit:
            raise TimeoutError(f"the thread of {self._name} hangs: a call has not returned for {limit:g} s")

    def submit(self, function: Callable[..., ResultT], /, *args: Any, **kwargs: Any) -> Future[ResultT]:
        """Queue a call; the thread skips it if the future is cancelled before."""
        future: Future[ResultT] = Future()
        work = function if isinstance(function, _Call) else _Call(partial(function, *args, **kwargs))
        with self._lock:
            if os.getpid() != self._process:
                # The thread did not survive the fork, and the queue may have been in use.
                self._process, self._thread, self._calls, self._began = os.getpid(), None, SimpleQueue(), None
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, args=(self._calls,), name=self._name, daemon=True)
                self._thread.start()
            self._calls.put((future, work))
        return future

    def _running_seconds(self) -> float:
        began = self._began
        return 0.0 if began is None or os.getpid() != self._process else time.monotonic() - began

    def _run(self, calls: _Calls) -> None:
        while True:
            future, call = calls.get()
            if not future.set_running_or_notify_cancel():
                continue
            self._more_seconds = call.more_seconds
            self._began = time.monotonic()
            try:
                result = call.work()
            except BaseException as error:  # noqa: BLE001 - raised where the call is awaited
                self._began = None
                future.set_exception(error)
            else:
                self._began = None
                future.set_result(result)
            del future, call
