"""An event loop without sockets in simulated time, whose order of events depends on nothing but the program.

Sets of tasks and futures are iterated in the order of their hashes. The default hash is an address, which differs from
run to run; here it is a number in order of creation, or of first use in a set.

The loop is asyncio's without what a history does not need: a debug mode, threads, signals and a selector. Those take
most of the time of a simulated year, in which little else happens per event.
"""

from __future__ import annotations

import asyncio
from asyncio import ALL_COMPLETED
from asyncio import wait as _wait_for_several
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from contextvars import Context, copy_context
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final
from unittest.mock import patch

from tests.simulated_time import SimulatedLoop, owner_of

# The wall clock at the beginning of every history.
_BEGINNING: Final = 1_800_000_000.0


class _Task(asyncio.Task[Any]):
    number = 0

    def __hash__(self) -> int:
        if not self.number:
            self.number = next(self.get_loop().numbers)  # type: ignore[attr-defined]
        return self.number


class _Future(asyncio.Future[Any]):
    number = 0
    __hash__ = _Task.__hash__


class _Handle(asyncio.TimerHandle):
    """A callback, without the support of asyncio for its debug mode and its own heap."""

    __slots__ = ()

    def __init__(self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context, when: float) -> None:
        self._callback = callback
        self._args = args
        self._context = context
        self._when = when
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]


class Clockwork(SimulatedLoop):
    """The event loop of one history.

    :ivar world: the context of what happens outside of all processes.
    """

    def __init__(self) -> None:
        self._now = 0.0
        super().__init__()
        self._started = _BEGINNING
        self._ready: deque[Any] = deque()  # type: ignore[assignment]
        # By time and then in the order in which they were set.
        self._timers: list[tuple[float, int, _Handle]] = []
        self._timer_numbers = count()
        self.numbers = count(1)
        self.world = copy_context()

    def time(self) -> float:
        return self._now

    async def getaddrinfo(self, host: Any, *_: Any, **__: Any) -> Any:
        """Report that the network was asked, which takes real time and has an answer that depends on the machine."""
        error = RuntimeError(f"a history looked up the address of {host}")
        self.call_exception_handler({"message": str(error), "exception": error})
        raise error

    def get_debug(self) -> bool:
        return False

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Any], *, name: str | None = None, context: Context | None = None
    ) -> _Task:
        # Not added to its process, which keeps its tasks from garbage collection: there is none meanwhile.
        return _Task(coro, loop=self, name=name, context=context)

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> _Handle:  # type: ignore[override]
        handle = _Handle(callback, args, copy_context() if context is None else context, self._now)
        self.add(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Handle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Handle:
        handle = _Handle(callback, args, copy_context() if context is None else context, when)
        heappush(self._timers, (when, next(self._timer_numbers), handle))
        return handle

    def add(self, handle: asyncio.Handle) -> None:
        """Run a callback next, unless its process is stopped."""
        owner = owner_of(handle)
        if owner is None or not owner.stopped:
            self._ready.append(handle)
        else:
            owner.hold(handle)

    def _run_once(self) -> None:
        """Run callbacks and let time pass until the loop is stopped."""
        while not self._stopping:  # type: ignore[attr-defined]
            self._let_time_pass()
            self._run_ready()

    def _let_time_pass(self) -> None:
        """Add the timers that are due to what is ready; if nothing is ready, let time pass until one is due."""
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heappop(timers)
        if not self._ready:
            if not timers:
                raise RuntimeError("deadlock: no callback or timer will ever become ready")
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            handle = heappop(timers)[2]
            if not handle._cancelled:
                self.add(handle)

    def _run_ready(self) -> None:
        """Run what is ready; what that adds runs in the next round, after timers that are due."""
        ready = self._ready
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            try:
                handle._context.run(handle._callback, *handle._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # noqa: BLE001 - as asyncio
                self.call_exception_handler({"message": "a callback failed", "exception": error})

    @contextmanager
    def patched_clocks(self) -> Iterator[None]:
        """Patch the clocks, and ``asyncio.wait`` by one that is as quick for a single future."""
        with super().patched_clocks(), patch.object(asyncio, "wait", _wait):
            yield


async def _wait(futures: Iterable[Any], *, timeout: float | None = None, return_when: str = ALL_COMPLETED) -> Any:
    """Do what ``asyncio.wait`` does; most waits are for one future, for which it takes half of the time."""
    given = set(futures)
    if len(given) != 1:
        return await _wait_for_several(given, timeout=timeout, return_when=return_when)
    (future,) = given
    loop: Any = future.get_loop()
    waiter = loop.create_future()
    timer = None if timeout is None else loop.call_later(timeout, _wake, waiter)
    wake = partial(_wake, waiter)
    future.add_done_callback(wake)
    try:
        await waiter
    finally:
        if timer is not None:
            timer.cancel()
        future.remove_done_callback(wake)
    return (given, set()) if future.done() else (set(), given)


def _wake(waiter: asyncio.Future[None], _: Any = None) -> None:
    if not waiter.done():
        waiter.set_result(None)
