"""What all senders of an open pair share within one process."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field

from servicebus_pair.core.health.prober import Prober
from servicebus_pair.core.health.registry import HealthRegistry
from servicebus_pair.core.health.session_ordering import SessionOrdering
from servicebus_pair.core.model.errors import PairClosedError, SendTimeoutError, ServiceError
from servicebus_pair.core.model.health_state import EntityHealth
from servicebus_pair.core.model.interfaces import Clock
from servicebus_pair.core.model.options import PairOptions
from servicebus_pair.core.sdk.namespace_client import NamespaceClient
from servicebus_pair.core.send.queue_selector import BacklogHealth, QueueSelector
from servicebus_pair.core.send.timeouts import Deadline
from servicebus_pair.core.spool.spool import Spool


class ProcessLoopGuard:
    """Remembers the process and the running event loop of its creation: the pair may be used in these only.

    From another loop, its connections would fail in ways that look like an outage; a forked process would write to its
    parent's sockets.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop = asyncio.get_running_loop()

    def check(self, *, creating: bool = False) -> None:
        """Check that the caller runs in the same process and loop.

        :param creating: the caller only creates an object, which a thread without an event loop may do, too.
        :raises PairClosedError: another process or loop; the text says what to do instead.
        """
        process = os.getpid()
        if process != self._process:
            raise PairClosedError(
                f"the pair was opened in process {self._process} and is not open in process {process}: "
                "open a pair in each process, after the fork"
            )
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if loop is not self._loop and not (creating and loop is None):
            here = "without one" if loop is None else "in another one"
            raise PairClosedError(
                f"the pair was opened in one event loop and is used {here}: open a pair in each loop, "
                "and from other threads submit the call to its loop (asyncio.run_coroutine_threadsafe)"
            )


class InFlightSends:
    """Counts sends in flight, so that closing a pair can wait for them; a context manager around each send."""

    def __init__(self) -> None:
        self._count = 0
        self._closing = False
        self._idle: asyncio.Event | None = None

    def __enter__(self) -> None:
        if self._closing:
            raise PairClosedError("the pair is closing or closed: nothing was sent; open a new pair")
        self._count += 1

    def __exit__(self, *_: object) -> None:
        self._count -= 1
        if not self._count and self._idle is not None:
            self._idle.set()

    async def close(self, *, grace: float) -> int:
        """Refuse new sends and wait up to ``grace`` seconds for those in flight; return how many remain."""
        self._closing, self._idle = True, asyncio.Event()
        try:
            async with asyncio.timeout(grace):
                if self._count:
                    await self._idle.wait()
        except TimeoutError:
            return self._count
        return 0


@dataclass(frozen=True, slots=True)
class PairContext:
    """Clients, health, pings, backlog queue selection and sends in flight of one open pair.

    :param order: set with ``ordering="session"``.
    :param spool: keeps what neither namespace takes.
    :param unspooled_from: name of the spool that what is sent comes from.
    :ivar accepted_at: when each entity, by folded path, last accepted a message of this process.
    """

    options: PairOptions
    primary: NamespaceClient
    secondary: NamespaceClient
    registry: HealthRegistry
    prober: Prober
    queue_selector: QueueSelector
    clock: Clock
    owner: ProcessLoopGuard
    backlog_health: BacklogHealth
    in_flight: InFlightSends = field(default_factory=InFlightSends)
    order: SessionOrdering | None = None
    accepted_at: dict[str, float] = field(default_factory=dict)
    spool: Spool | None = None
    unspooled_from: str | None = None


async def lease(
    context: PairContext, entity: str, deadline: Deadline, *, last: ServiceError | None = None
) -> EntityHealth:
    """Return the health that the next attempt obeys; with session order, what all processes agree on.

    :param last: the failure that used up the time, if any.
    :raises SendTimeoutError: the deadline passed first.
    :raises HealthStoreError: with session order, the shared store cannot be read.
    """
    try:
        unspools = context.unspooled_from is not None
        return await context.registry.lease(entity, timeout=deadline.remaining(last=last), unspools=unspools)
    except TimeoutError as error:
        if isinstance(error, SendTimeoutError):
            raise
        raise deadline.timeout_error(last=last) from error
