"""An event loop whose time passes only when nobody has anything left to do, and several processes in it.

Sockets and SDK are the real ones. What waits for time is woken at once, in the order of its time, so
that minutes of pings, locks and rests take no time, and the same steps have the same outcome. A
process here is whatever runs in one context: it can be stopped and continued as by SIGSTOP and
SIGCONT, and killed as by ``kill -9``: no line of it is run any more, and its sockets are closed.
"""

from __future__ import annotations

import asyncio
import selectors
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import Context, ContextVar, copy_context
from fcntl import ioctl
from termios import TIOCOUTQ
from typing import Any, TypeAlias, TypeVar
from unittest.mock import patch
from weakref import WeakSet

import pytest

__all__ = ["LoopFactories", "Process", "RulingLoop", "SimulatedLoop", "loop_of"]

LoopFactories: TypeAlias = dict[str, Callable[[], asyncio.AbstractEventLoop]]
ResultT = TypeVar("ResultT")
# How often the kernel is asked whether what was written to a socket is there before time passes, and how
# often and for how long when it knows of bytes that are not.
_LOOKS = 3
_LONG_LOOKS = 2
_LOOK_SECONDS = 0.001
# Later than any clock that the SDK reads by a way of its own: no token and no lock is over before its time.
_BEGINNING = time.time() + 300
_owner: ContextVar[Process | None] = ContextVar("owner", default=None)


class Process:
    """All that was begun by :meth:`begin`, and what that began in turn."""

    def __init__(self, loop: SimulatedLoop, name: str) -> None:
        self.name = name
        self.stopped = False
        self.dead = False
        self._loop = loop
        self._waiting: list[asyncio.Handle] = []
        self._sockets: list[selectors.SelectorKey] = []
        self._tasks: WeakSet[asyncio.Task[Any]] = WeakSet()
        # Of a stopped process nothing is collected either: that would run the ends of its coroutines, in our context.
        self._kept: list[asyncio.Task[Any]] = []
        self._context = copy_context()
        self._context.run(_owner.set, self)

    def begin(self, work: Coroutine[Any, Any, ResultT]) -> asyncio.Task[ResultT]:
        return self._loop.create_task(work, context=self._context.copy())

    def call(self, function: Callable[..., ResultT], *given: Any) -> ResultT:
        """Run a function as a part of this process."""
        return self._context.copy().run(function, *given)

    def stop(self) -> None:
        """No line of it runs, its sockets stay open: the kernel still takes in what comes."""
        self.stopped = True
        self._kept = list(self._tasks)
        self._waiting += self._loop.take_from_line(self)
        self._sockets += self._loop.deafen(self)

    def resume(self) -> None:
        self.stopped = False
        self._loop.listen(self._sockets)
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

    async def bury(self) -> None:
        """Let its tasks end, once they can do no harm any more: Python complains about those that never do."""
        self.dead = True
        self.resume()
        while tasks := {task for task in self._tasks if not task.done()}:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=10)

    def adopt(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)

    def keep(self, handle: asyncio.Handle) -> None:
        self._waiting.append(handle)


class _Line(deque[asyncio.Handle]):
    """What is to be run next; what belongs to a stopped process waits with it."""

    def append(self, handle: asyncio.Handle) -> None:
        owner = owner_of(handle)
        if owner is None or not owner.stopped:
            super().append(handle)
        else:
            owner.keep(handle)


class _Selector(selectors.DefaultSelector):
    """Does not wait: when no socket has anything, and nothing is on its way to one, the time is over."""

    def __init__(self) -> None:
        super().__init__()
        self.passed = 0.0
        self._stuck: dict[int, int] = {}

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        ready = self._arrived()
        if ready:
            return ready
        if timeout is None:
            raise RuntimeError("everybody waits, and nothing will ever happen")
        self.passed += timeout
        return []

    def _arrived(self) -> list[tuple[selectors.SelectorKey, int]]:
        """Let the kernel hand over what was written: on a busy machine it does so a little later."""
        for _ in range(_LOOKS):
            ready = super().select(0)
            if ready:
                return ready
        for _ in range(_LONG_LOOKS):
            if all(self._stuck.get(fd) == left for fd, left in self._on_the_way().items()):
                return []
            ready = super().select(_LOOK_SECONDS)
            if ready:
                return ready
        # The acknowledgement of what has come is late, and what a frozen peer does not take in never comes: nobody
        # waits for the same twice.
        self._stuck = self._on_the_way()
        return []

    def _on_the_way(self) -> dict[int, int]:
        """The sockets whose connection is being made, or whose bytes no peer's kernel has acknowledged (tcp(7))."""
        waiting: dict[int, int] = {}
        for key in self.get_map().values():
            unacknowledged = _unacknowledged(key.fd)
            if unacknowledged > 0 or key.events & selectors.EVENT_WRITE:
                waiting[key.fd] = unacknowledged
        return waiting


def _unacknowledged(fd: int) -> int:
    try:
        return int.from_bytes(ioctl(fd, TIOCOUTQ, bytes(4)), sys.byteorder)
    except OSError:
        return 0  # it only listens


class SimulatedLoop(asyncio.SelectorEventLoop):
    """The event loop; :attr:`wall` is by how many seconds somebody has set the machine's clock."""

    def __init__(self) -> None:
        self._jumping = _Selector()
        super().__init__(self._jumping)
        self.wall = 0.0
        self._ready = _Line()
        self.set_task_factory(_create_task)  # type: ignore[arg-type]

    def time(self) -> float:
        return self._jumping.passed

    def wall_clock(self) -> float:
        return _BEGINNING + self.wall + self._jumping.passed

    def run_in_executor(self, _executor: Any, function: Callable[..., Any], *given: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """At once: a thread would take the machine's time."""
        answer = self.create_future()
        answer.set_result(function(*given))
        return answer

    @contextmanager
    def ruling_the_clocks(self) -> Iterator[None]:
        """Everybody's clock is this loop's, the SDK's included.

        Nobody speaks TLS here, and the SDK would read the machine's certificates for each connection all the same,
        which takes longer than everything else.
        """
        with (
            patch("ssl.SSLContext.load_verify_locations"),
            patch("time.monotonic", self.time),
            patch("time.time", self.wall_clock),
            patch("time.time_ns", lambda: int(self.wall_clock() * 1e9)),
        ):
            yield

    def take_from_line(self, process: Process) -> list[asyncio.Handle]:
        taken = [handle for handle in self._ready if owner_of(handle) is process]
        rest = [handle for handle in self._ready if owner_of(handle) is not process]
        self._ready.clear()
        self._ready.extend(rest)
        return taken

    def add(self, handle: asyncio.Handle) -> None:
        self._ready.append(handle)

    def deafen(self, process: Process) -> list[selectors.SelectorKey]:
        keys = [
            key
            for key in list(self._jumping.get_map().values())
            if any(handle is not None and owner_of(handle) is process for handle in key.data)
        ]
        for key in keys:
            self._jumping.unregister(key.fileobj)
        return keys

    def listen(self, keys: list[selectors.SelectorKey]) -> None:
        for key in keys:
            self._jumping.register(key.fileobj, key.events, key.data)


class RulingLoop(SimulatedLoop):
    """One that rules the clocks for as long as it is there: that of a test."""

    def __init__(self) -> None:
        super().__init__()
        self._clocks = ExitStack()
        self._clocks.enter_context(self.ruling_the_clocks())

    def close(self) -> None:
        self._clocks.close()
        super().close()


def loop_of(item: pytest.Item) -> LoopFactories:
    """Answer what makes the loop of a test, as pytest-asyncio asks for it.

    One that is marked ``simulated`` waits for nothing but what it does itself, however busy the machine is.
    """
    nearest = next((mark.name for mark in item.iter_markers() if mark.name in {"simulated", "real_time"}), "real_time")
    return {nearest: RulingLoop if nearest == "simulated" else asyncio.new_event_loop}


def owner_of(handle: asyncio.Handle) -> Process | None:
    context: Context = handle._context  # type: ignore[attr-defined]
    return context.get(_owner)


def _create_task(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], context: Context | None = None
) -> asyncio.Task[Any]:
    task = asyncio.Task(work, loop=loop, context=context)
    owner = _owner.get() if context is None else context.get(_owner)
    if owner is not None:
        owner.adopt(task)
    return task


def _hang_up(end: socket.socket) -> None:
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it was not connected
