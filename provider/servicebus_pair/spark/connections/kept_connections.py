"""What the tasks of one Python worker leave open for the next one: Spark reuses its workers, one task at a time.

A task takes what an earlier one has left under the same key, or opens its own. No other task has it meanwhile, and it
stays open only if the task succeeds. Nothing is kept idle for longer than half a minute (Spark ends a
worker that was idle for one), nor across a fork, nor once the reference in its key stands for other settings.
"""

from __future__ import annotations

import asyncio
import atexit
import os
from collections.abc import Callable, Coroutine, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, Generic, Protocol, TypeVar

from servicebus_pair.core import SyncBridge
from servicebus_pair.core.model import get_logger

_log = get_logger(__name__)
IDLE_SECONDS: Final = 30.0
MAX_KEPT: Final = 4


class _Connection(Protocol):
    async def close(self) -> None: ...


ConnectionT = TypeVar("ConnectionT", bound=_Connection)


@dataclass(slots=True)
class Loan(Generic[ConnectionT]):
    """What a task works with.

    :param bridge: runs the coroutines of ``connection``.
    :ivar is_reusable: whether ``connection`` stays open for the next task; set it to False after a failure.
    """

    bridge: SyncBridge
    connection: ConnectionT
    is_reusable: bool = True


@dataclass(eq=False, slots=True)
class _Idle:
    key: Hashable
    settings: object
    connection: _Connection
    timer: asyncio.TimerHandle | None = None


class _Keeper:
    """The idle connections of one process. Its coroutines run in the loop of its bridge."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._resources = ExitStack()
        self._bridge: SyncBridge | None = None
        self._idle: list[_Idle] = []
        self._closing: set[asyncio.Task[None]] = set()

    def bridge(self) -> SyncBridge:
        """Return the bridge of all connections of this process, which stays open until the process ends."""
        with self._lock:
            if self._bridge is None:
                self._bridge = self._resources.enter_context(SyncBridge())
                self._resources.callback(lambda bridge: bridge.run(self._close()), self._bridge)
            return self._bridge

    def end(self) -> None:
        """Close all connections that are idle, and the bridge."""
        self._resources.close()

    async def take(self, key: Hashable, settings: object) -> Any:
        """Return the connection used last, or ``None``; those of the key with other settings are closed."""
        for idle in [each for each in reversed(self._idle) if each.key == key]:
            if idle.settings == settings:
                self._forget(idle)
                return idle.connection
            self._end(idle)
        return None

    async def keep(self, idle: _Idle) -> None:
        """Keep a connection until somebody takes it, and not for ever."""
        idle.timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._end, idle)
        self._idle.append(idle)
        if len(self._idle) > MAX_KEPT:
            self._end(self._idle[0])

    async def _close(self) -> None:
        for idle in [*self._idle]:
            self._end(idle)
        await asyncio.gather(*self._closing)

    def _forget(self, idle: _Idle) -> None:
        self._idle.remove(idle)
        if idle.timer is not None:
            idle.timer.cancel()

    def _end(self, idle: _Idle) -> None:
        self._forget(idle)
        closing = asyncio.get_running_loop().create_task(_close(idle.connection))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


# By process: after a fork, the connections are those of the parent, and the thread of their loop is not there.
_keepers: Final[dict[int, _Keeper]] = {}


@contextmanager
def kept(
    key: Hashable, settings: object, open_connection: Callable[[], Coroutine[Any, Any, ConnectionT]]
) -> Iterator[Loan[ConnectionT]]:
    """Lend what an earlier task has left open, or what ``open_connection`` returns; after an exception, close it.

    :param key: without secrets: what is opened, the reference to its settings, and options.
    :param settings: what is left under the key with other ones is closed.
    """
    keeper = _keepers.setdefault(os.getpid(), _Keeper())
    bridge = keeper.bridge()
    connection = bridge.run(keeper.take(key, settings))
    loan: Loan[ConnectionT] = Loan(bridge, bridge.run(open_connection()) if connection is None else connection)
    try:
        yield loan
    except BaseException:
        loan.is_reusable = False
        raise
    finally:
        if loan.is_reusable:
            bridge.run(keeper.keep(_Idle(key, settings, loan.connection)))
        else:
            bridge.run(loan.connection.close())


async def _close(connection: _Connection) -> None:
    try:
        await connection.close()
    except Exception as error:  # noqa: BLE001 - nobody waits for it
        _log.warning("closing an idle connection ended with %s", type(error).__name__)


@atexit.register
def _end_own() -> None:
    keeper = _keepers.pop(os.getpid(), None)
    if keeper is not None:
        keeper.end()
