"""An event loop in simulated time, and several simulated processes in it.

Sockets and the SDK are real. Time advances only when no callback is ready; timers then fire at once, in order, so that
minutes of pings, locks and back-off take no time and runs are repeatable. A process here is everything that runs in one
context. It can be stopped and resumed as by SIGSTOP and SIGCONT, and killed as by ``kill -9``: its code no longer runs,
and its sockets are closed.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager, suppress
from contextvars import Context, ContextVar, copy_context
from fcntl import ioctl
from termios import TIOCOUTQ
from typing import Any, TypeAlias, TypeVar, cast
from unittest.mock import patch
from weakref import WeakSet

import pytest

LoopFactories: TypeAlias = dict[str, Callable[[], asyncio.AbstractEventLoop]]
ResultT = TypeVar("ResultT")
# How often to poll the kernel for written data before time advances, and how often and how long when it reports
# unacknowledged bytes.
_POLLS = 3
_LONG_POLLS = 2
_POLL_SECONDS = 0.001
# How far a loop's wall clock is ahead of the real one, which the SDK reads through datetime: a token or lock must not
# expire early. It counts from the creation of the loop, because a loaded test run takes longer than this.
_AHEAD_SECONDS = 300
_real_time = time.time
_owner: ContextVar[Process | None] = ContextVar("owner", default=None)


class Process:
    """All tasks started by :meth:`start`, and those that they start."""

    def __init__(self, loop: SimulatedLoop, name: str) -> None:
        self.name = name
        self.stopped = False
        self.dead = False
        self._loop = loop
        self._waiting: list[asyncio.Handle] = []
        self._sockets: list[selectors.SelectorKey] = []
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        # Keeps the tasks of a stopped process from garbage collection, which would run their cleanup in our context.
        self._kept: list[asyncio.Task[Any]] = []
        self._context = copy_context()
        self._context.run(_owner.set, self)

    def start(self, work: Coroutine[Any, Any, ResultT]) -> asyncio.Task[ResultT]:
        return self._loop.create_task(work, context=self._context.copy())

    def call(self, function: Callable[..., ResultT], *given: Any) -> ResultT:
        """Run a function in this process."""
        return self._context.copy().run(function, *given)

    def stop(self) -> None:
        """Run none of its code; its sockets stay open, and the kernel still receives data."""
        self.stopped = True
        self._kept = list(self._tasks)
        self._waiting += self._loop.remove_ready(self)
        self._sockets += self._loop.unregister(self)

    def resume(self) -> None:
        self.stopped = False
        self._loop.register(self._sockets)
        self._sockets = []
        for handle in self._waiting:
            self._loop.add(handle)
        self._waiting = []
        self._kept = []

    def kill(self) -> None:
        self.stop()
        self.dead = True
        for key in self._sockets:
            with socket.fromfd(key.fd, socket.AF_INET, socket.SOCK_STREAM) as end:
                _hang_up(end)

    async def reap(self) -> None:
        """Cancel its tasks and await them, because Python warns about tasks that never end."""
        self.dead = True
        self.resume()
        while tasks := {task for task in self._tasks if not task.done()}:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=10)

    def add_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)

    def hold(self, handle: asyncio.Handle) -> None:
        self._waiting.append(handle)


class _ReadyQueue(deque[asyncio.Handle]):
    """The loop's ready callbacks; those of a stopped process are held by it."""

    def append(self, handle: asyncio.Handle) -> None:
        owner = owner_of(handle)
        if owner is None or not owner.stopped:
            super().append(handle)
        else:
            owner.hold(handle)


class _Selector(selectors.DefaultSelector):
    """A selector that never waits: if no socket is ready and no data is in transit, it advances the time."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0
        self._stuck: dict[int, int] = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        ready = self._delivered()
        if ready:
            return ready
        if timeout is None:
            raise RuntimeError("deadlock: no callback, timer or socket will ever become ready")
        self.passed += timeout
        return []

    def _delivered(self) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait briefly for the kernel to deliver written data: on a busy machine that takes a while."""
        for _ in range(_POLLS):
            ready = super().select(0)
            if ready:
                return ready
        for _ in range(_LONG_POLLS):
            if all(self._stuck.get(fd) == left for fd, left in self._in_transit().items()):
                return []
            ready = super().select(_POLL_SECONDS)
            if ready:
                return ready
        # Acknowledgements may be late, and data for a frozen peer never arrives: do not wait for the same bytes twice.
        self._stuck = self._in_transit()
        return []

    def _in_transit(self) -> dict[int, int]:
        """Return sockets that are connecting, or whose bytes the peer's kernel has not acknowledged (tcp(7))."""
        waiting: dict[int, int] = {}
        registered = self.get_map()
        for fd in cast("list[int]", list(registered)):  # a garbage collection meanwhile may close and remove sockets
            unacknowledged = _unacknowledged(fd)
            key = registered.get(fd)
            if key is not None and (unacknowledged > 0 or key.events & selectors.EVENT_WRITE):
                waiting[fd] = unacknowledged
        return waiting


def _unacknowledged(fd: int) -> int:
    try:
        return int.from_bytes(ioctl(fd, TIOCOUTQ, bytes(4)), sys.byteorder)
    except OSError:
        return 0  # a listening socket


class SimulatedLoop(asyncio.SelectorEventLoop):
    """The event loop; :attr:`wall` is the number of seconds by which a test moved the wall clock."""

    def __init__(self) -> None:
        self._time_selector = _Selector()
        super().__init__(self._time_selector)
        self.wall = 0.0
        self._started = _real_time() + _AHEAD_SECONDS
        self._ready = _ReadyQueue()
        self.set_task_factory(_create_task)  # type: ignore[arg-type]

    def time(self) -> float:
        return self._time_selector.passed

    def wall_clock(self) -> float:
        return self._started + self.wall + self.time()

    def run_in_executor(self, _executor: Any, function: Callable[..., Any], *given: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Run the function at once: a thread would use real time."""
        answer = self.create_future()
        answer.set_result(function(*given))
        return answer

    @contextmanager
    def patched_clocks(self) -> Iterator[None]:
        """Patch the clocks of this process, including the SDK's, to this loop's time.

        Also skip loading certificates: the SDK loads them for each connection even without TLS, which takes longer than
        everything else here.
        """
        with (
            patch("ssl.SSLContext.load_verify_locations"),
            patch("time.monotonic", self.time),
            patch("time.time", self.wall_clock),
            patch("time.time_ns", lambda: int(self.wall_clock() * 1e9)),
        ):
            yield

    def remove_ready(self, process: Process) -> list[asyncio.Handle]:
        taken = [handle for handle in self._ready if owner_of(handle) is process]
        rest = [handle for handle in self._ready if owner_of(handle) is not process]
        self._ready.clear()
        # A loop that is running its callbacks has counted them before. Not appended: within the process that is
        # killed, that would hold them.
        placeholder = asyncio.Handle(_noop, (), self)
        placeholder.cancel()
        self._ready.extend([*rest, *[placeholder] * len(taken)])
        return taken

    def add(self, handle: asyncio.Handle) -> None:
        self._ready.append(handle)

    def unregister(self, process: Process) -> list[selectors.SelectorKey]:
        keys = [
            key
            for key in list(self._time_selector.get_map().values())
            if any(handle is not None and owner_of(handle) is process for handle in key.data)
        ]
        for key in keys:
            self._time_selector.unregister(key.fileobj)
        return keys

    def register(self, keys: list[selectors.SelectorKey]) -> None:
        for key in keys:
            with suppress(OSError):  # a transport without references closed its socket meanwhile
                self._time_selector.register(key.fileobj, key.events, key.data)


class PatchedClockLoop(SimulatedLoop):
    """A simulated loop that patches the clocks until it is closed: the loop of a test."""

    def __init__(self) -> None:
        super().__init__()
        self._clocks = ExitStack()
        self._clocks.enter_context(self.patched_clocks())

    def close(self) -> None:
        self._clocks.close()
        super().close()


def loop_factories(item: pytest.Item) -> LoopFactories:
    """Return the event loop factory of a test for pytest-asyncio: simulated time if it is marked ``simulated``."""
    nearest = next((mark.name for mark in item.iter_markers() if mark.name in {"simulated", "real_time"}), "real_time")
    return {nearest: PatchedClockLoop if nearest == "simulated" else asyncio.new_event_loop}


def owner_of(handle: asyncio.Handle) -> Process | None:
    context: Context = handle._context  # type: ignore[attr-defined]
    return context.get(_owner)


def current_process(context: Context | None = None) -> Process | None:
    """Return the process to which a context belongs, by default the current one."""
    return _owner.get() if context is None else context.get(_owner)


def _create_task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], context: Context | None = None
) -> asyncio.Task[Any]:
    task = asyncio.Task(work, loop=loop, context=context)
    owner = current_process(context)
    if owner is not None:
        owner.add_task(task)
    return task


def _noop() -> None:
    """Do nothing."""


def _hang_up(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # not connected
