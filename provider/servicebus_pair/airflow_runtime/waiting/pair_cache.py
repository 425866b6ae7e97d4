"""One open pair per connection and process, shared by everything that waits on it.

A triggerer runs hundreds of triggers. They share one client per namespace, and one ping or one reading of the backlog
serves all of them. Airflow's shared streams only share a poll between equal triggers; ours wait for different entities
over the same clients.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context
from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from servicebus_pair.airflow_runtime.observers.asset_events import HealthChangeRecorder
from servicebus_pair.airflow_runtime.state.spool_sightings import warn_of_other_spools
from servicebus_pair.core.errors import EntityNotFoundError
from servicebus_pair.core.events import Event, Observer, Pinged
from servicebus_pair.core.model import get_logger
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook

if TYPE_CHECKING:
    from servicebus_pair.core import BacklogSurvey, EntityHealth, NamespacePair, PairSettings
    from servicebus_pair.core.sdk import QueueDepth
    from servicebus_pair.core.spool import SpooledEntity

_log = get_logger(__name__)
ResultT = TypeVar("ResultT")
_ALL_QUEUES: Final = "all queues"
_OTHER_SPOOLS_SECONDS: Final = 60.0


class SingleFlightCache(Generic[ResultT]):
    """Caches results by key and runs at most one call per key at a time; errors are cached too.

    A call continues when the waiter that started it is cancelled, because others may wait for it.
    """

    def __init__(self) -> None:
        self._calls: dict[str, asyncio.Task[ResultT]] = {}
        self._completed_at: dict[str, float] = {}

    async def get(self, key: str, call: Callable[[], Coroutine[Any, Any, ResultT]], *, max_age: float) -> ResultT:
        """Return a result that is at most ``max_age`` seconds old, calling ``call`` if there is none.

        :raises Exception: what ``call`` raised.
        """
        task = self._calls.get(key)
        if task is None or (task.done() and time.monotonic() - self._completed_at.get(key, -inf) > max_age):
            # In an empty context, so that its log lines do not end up in the log of the trigger that came first.
            task = asyncio.get_running_loop().create_task(self._run(key, call), name=f"get {key}", context=Context())
            self._calls[key] = task
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel the calls in progress."""
        for task in self._calls.values():
            task.cancel()
        await asyncio.gather(*self._calls.values(), return_exceptions=True)

    async def _run(self, key: str, call: Callable[[], Coroutine[Any, Any, ResultT]]) -> ResultT:
        # Recorded before the task is done: a callback would run after those that wait for it.
        try:
            return await call()
        finally:
            self._completed_at[key] = time.monotonic()


class SharedPair:
    """An open pair and the observers of all who share it; made by :func:`shared_pair`."""

    def __init__(self) -> None:
        self._pair: NamespacePair | None = None
        self._observers: list[Observer] = []
        self._health_changes = HealthChangeRecorder()
        self._last_pings: dict[str, tuple[Pinged, float]] = {}
        self._pings: SingleFlightCache[None] = SingleFlightCache()
        self._depths: SingleFlightCache[list[QueueDepth]] = SingleFlightCache()
        self._first_pages: SingleFlightCache[BacklogSurvey] = SingleFlightCache()
        self._spooled: SingleFlightCache[Mapping[str, SpooledEntity]] = SingleFlightCache()
        self._conn_id = ""
        self._other_spools_at = -inf

    @property
    def pair(self) -> NamespacePair:
        """The pair itself."""
        if self._pair is None:
            raise RuntimeError("the pair is not open: use it inside 'async with shared_pair(hook)'")
        return self._pair

    def observe(self, event: Event) -> None:
        """Pass an event of the pair to all observers."""
        if isinstance(event, Pinged):
            self._last_pings[event.entity.casefold()] = event, time.monotonic()
        self._health_changes.observe(event)
        for observer in tuple(self._observers):
            observer.observe(event)

    @contextmanager
    def observed_by(self, observer: Observer) -> Iterator[None]:
        """Pass every event to ``observer`` for the length of the block."""
        self._observers.append(observer)
        try:
            yield
        finally:
            self._observers.remove(observer)

    def last_ping(self, entity: str, *, max_age: float) -> Pinged | None:
        """Return the last ping of ``entity`` if it ended at most ``max_age`` seconds ago."""
        pinged, at = self._last_pings.get(entity.casefold(), (None, 0.0))
        return pinged if time.monotonic() - at <= max_age else None

    async def ping(self, entity: str) -> None:
        """Ping ``entity``, or join a ping in progress; observers receive the outcome."""
        await self._pings.get(entity.casefold(), lambda: self._ping(entity), max_age=0.0)

    async def queue_depths(self, *, max_age: float) -> list[QueueDepth]:
        """Return the depth of each backlog queue, as read at most ``max_age`` seconds ago.

        :raises ServiceError: the secondary's administration cannot be reached.
        """
        return await self._depths.get(_ALL_QUEUES, self.pair.backlog_depths, max_age=max_age)

    @property
    def has_spool(self) -> bool:
        """Whether the pair has a spool."""
        return self.pair.options.spool is not None

    async def spooled(self, *, max_age: float) -> Mapping[str, SpooledEntity]:
        """Return what the spool holds, by folded entity, as listed at most ``max_age`` seconds ago.

        :raises SpoolError: it cannot be read.
        """
        return await self._spooled.get(_ALL_QUEUES, self._list_spool, max_age=max_age)

    async def first_page(self, *, max_age: float) -> BacklogSurvey:
        """Return a survey of the oldest messages of each backlog queue, as peeked at most ``max_age`` seconds ago.

        :raises ServiceError: the secondary cannot be reached.
        """
        return await self._first_pages.get(_ALL_QUEUES, self._survey_first_page, max_age=max_age)

    def pop_recoveries(self, entities: list[str]) -> dict[str, EntityHealth]:
        """Return the recoveries of ``entities`` detected here; each is returned once, so only one waiter emits it."""
        recovered = self._health_changes.recovered
        return {entity: recovered.pop(entity) for entity in list(recovered) if entity.casefold() in entities}

    async def _ping(self, entity: str) -> None:
        if entity.casefold() not in self._last_pings:
            # Opening a sender loads the shared health, and pings an entity that was left failed over.
            async with self.pair.sender(entity):
                pass
            if entity.casefold() in self._last_pings:
                return
        await self.pair.ping(entity)

    async def _list_spool(self) -> Mapping[str, SpooledEntity]:
        if time.monotonic() - self._other_spools_at >= _OTHER_SPOOLS_SECONDS:
            self._other_spools_at = time.monotonic()
            await warn_of_other_spools(self._conn_id, self.pair)
        return await self.pair.spooled()

    async def _survey_first_page(self) -> BacklogSurvey:
        from servicebus_pair.core import BacklogSurvey
        from servicebus_pair.core.protocol import queues_in_use

        pair = self.pair
        queues = queues_in_use(pair.primary.namespace, pair.options)
        return BacklogSurvey.total(await asyncio.gather(*(_survey_queue(pair, queue) for queue in queues)))

    async def serve(
        self, hook: ServiceBusPairHook, opened: asyncio.Future[SharedPair], released: asyncio.Event
    ) -> None:
        """Open the pair, resolve ``opened``, and close the pair once ``released`` is set."""
        self._conn_id = hook.servicebus_pair_conn_id
        try:
            async with hook.pair(observers=[self]) as self._pair:
                opened.set_result(self)
                await released.wait()
                await self._pings.close()
                await self._depths.close()
                await self._first_pages.close()
                await self._spooled.close()
        except Exception as error:  # noqa: BLE001  those who wait for the pair raise it
            if opened.done():
                _log.exception("conn_id=%s: closing the shared pair failed", hook.servicebus_pair_conn_id)
            else:
                opened.set_exception(error)
        finally:
            self._pair = None


async def _survey_queue(pair: NamespacePair, queue: str) -> BacklogSurvey:
    from servicebus_pair.core import BacklogSurvey
    from servicebus_pair.core.protocol import entity_of_session, is_session_queue
    from servicebus_pair.core.syphon import DestinationSurvey

    try:
        found = await pair.syphon([queue]).survey(first_page=True)
        if not is_session_queue(pair.primary.namespace, queue):
            return found
        # Sessions that a syphon holds, or held until it was killed, cannot be peeked. They are named after entities.
        peeked = {entity.casefold() for entity in found.destinations}
        waiting = map(entity_of_session, await pair.waiting_sessions(queue))
        hidden = [entity for entity in waiting if entity is not None and entity not in peeked]
        return found + BacklogSurvey({entity: DestinationSurvey() for entity in hidden})
    except EntityNotFoundError:  # not provisioned yet, so it holds nothing
        return BacklogSurvey()


class _Lease:
    """One open pair, the number of its users, and the task that opens and closes it."""

    def __init__(self, hook: ServiceBusPairHook, settings: PairSettings) -> None:
        self.settings = settings
        self.users = 0
        self._opened: asyncio.Future[SharedPair] = asyncio.get_running_loop().create_future()
        self._released = asyncio.Event()
        serving = SharedPair().serve(hook, self._opened, self._released)
        # In an empty context, because the first user may leave long before the last one.
        self._task = asyncio.get_running_loop().create_task(
            serving, name=f"pair {hook.servicebus_pair_conn_id}", context=Context()
        )

    async def wait_until_open(self) -> SharedPair:
        """Return the pair once it is open."""
        return await asyncio.shield(self._opened)

    def release(self) -> Awaitable[Any]:
        """Start closing the pair and return an awaitable that ends when it is closed."""
        self._released.set()
        return asyncio.shield(asyncio.gather(self._task, return_exceptions=True))


# By event loop and connection; a connection that was edited has a second lease until the first one's users leave.
_leases: dict[tuple[int, str], list[_Lease]] = {}


@asynccontextmanager
async def shared_pair(hook: ServiceBusPairHook) -> AsyncIterator[SharedPair]:
    """Open the pair, or share it with everything in this event loop that uses the same connection.

    The connection is read each time. If it was edited, a second pair is opened; the old one is closed when its last
    user leaves.

    :raises ConfigurationError: as in ``ServiceBusPairHook.get_settings``.
    """
    settings = await hook.aget_settings()
    leases = _leases.setdefault((id(asyncio.get_running_loop()), hook.servicebus_pair_conn_id), [])
    lease = next((each for each in leases if each.settings == settings), None)
    if lease is None:
        leases.append(lease := _Lease(hook, settings))
    lease.users += 1
    try:
        yield await lease.wait_until_open()
    finally:
        lease.users -= 1
        if lease.users == 0:
            leases.remove(lease)
            if not leases:
                _leases.pop((id(asyncio.get_running_loop()), hook.servicebus_pair_conn_id), None)
            await lease.release()
