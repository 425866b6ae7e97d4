"""One pair for all that waits on the same connection in one process.

A triggerer runs hundreds of triggers. They share one client per namespace, and a ping of an entity
or a look at the backlog serves all of them. Airflow's shared streams share one poll between equal
triggers; these here wait for different entities over the same clients, so the sharing is ours.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from servicebus_pair.core.errors import EntityNotFoundError
from servicebus_pair.core.events import Event, Observer, Pinged
from servicebus_pair.hooks.news import HealthNews
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook

if TYPE_CHECKING:
    from servicebus_pair.core.administration import QueueDepth
    from servicebus_pair.core.configuration import PairSettings
    from servicebus_pair.core.health import EntityHealth
    from servicebus_pair.core.pair import NamespacePair
    from servicebus_pair.core.survey import BacklogSurvey

__all__ = ["FreshAnswers", "WatchedPair", "watched_pair"]

_log = logging.getLogger(__name__)
AnswerT = TypeVar("AnswerT")
_DEPTHS: Final = "depths"
_GLIMPSE: Final = "glimpse"


class FreshAnswers(Generic[AnswerT]):
    """Answers shared by all who ask the same while one is young; a failure is an answer too.

    A question that was asked goes on when the one who asked first is cancelled.
    """

    def __init__(self) -> None:
        self._asked: dict[str, asyncio.Task[AnswerT]] = {}
        self._answered_at: dict[str, float] = {}

    async def ask(self, key: str, question: Callable[[], Coroutine[Any, Any, AnswerT]], *, young: float) -> AnswerT:
        """Return an answer that is at most ``young`` seconds old, asking for it if there is none.

        :raises Exception: what the question raised.
        """
        asked = self._asked.get(key)
        if asked is None or (asked.done() and time.monotonic() - self._answered_at[key] > young):
            # In a context of its own: what the question logs belongs to none of those who wait.
            asked = asyncio.get_running_loop().create_task(question(), name=f"ask {key}", context=Context())
            asked.add_done_callback(lambda _: self._note(key))
            self._asked[key] = asked
        return await asyncio.shield(asked)

    async def close(self) -> None:
        """Give up the questions that nobody has answered yet."""
        for asked in self._asked.values():
            asked.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)

    def _note(self, key: str) -> None:
        self._answered_at[key] = time.monotonic()


class WatchedPair:
    """An open pair and all that listen to it; made by :func:`watched_pair`."""

    def __init__(self) -> None:
        self._pair: NamespacePair | None = None
        self._listeners: list[Observer] = []
        self._news = HealthNews()
        self._pinged: dict[str, tuple[Pinged, float]] = {}
        self._pings: FreshAnswers[None] = FreshAnswers()
        self._depths: FreshAnswers[list[QueueDepth]] = FreshAnswers()
        self._glimpses: FreshAnswers[BacklogSurvey] = FreshAnswers()

    @property
    def pair(self) -> NamespacePair:
        """The pair itself."""
        if self._pair is None:
            raise RuntimeError("the pair is not open: use it inside 'async with watched_pair(hook)'")
        return self._pair

    def observe(self, event: Event) -> None:
        """Hand an event of the pair to all listeners."""
        if isinstance(event, Pinged):
            self._pinged[event.entity.casefold()] = event, time.monotonic()
        self._news.observe(event)
        for listener in tuple(self._listeners):
            listener.observe(event)

    @contextmanager
    def listening(self, listener: Observer) -> Iterator[None]:
        """Tell ``listener`` every event as long as the context lasts."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    def last_ping(self, entity: str, *, young: float) -> Pinged | None:
        """Return the last ping of ``entity`` if it ended at most ``young`` seconds ago."""
        pinged, at = self._pinged.get(entity.casefold(), (None, 0.0))
        return pinged if time.monotonic() - at <= young else None

    async def ping(self, entity: str) -> None:
        """Ping ``entity`` once, together with everybody who wants that now; listeners learn what came of it."""
        await self._pings.ask(entity.casefold(), lambda: self._ping(entity), young=0.0)

    async def depths(self, *, young: float) -> list[QueueDepth]:
        """Return how much each backlog queue holds, as counted at most ``young`` seconds ago.

        :raises ServiceError: the secondary's administration cannot be reached.
        """
        return await self._depths.ask(_DEPTHS, self.pair.backlog_depths, young=young)

    async def glimpse(self, *, young: float) -> BacklogSurvey:
        """Return what the oldest messages of each backlog queue are, as peeked at most ``young`` seconds ago.

        :raises ServiceError: the secondary cannot be reached.
        """
        return await self._glimpses.ask(_GLIMPSE, self._glimpse, young=young)

    def take_recovered(self, entities: list[str]) -> dict[str, EntityHealth]:
        """Return the recoveries of ``entities`` that were found here, each to one taker only, who announces it."""
        found = self._news.recovered
        return {entity: found.pop(entity) for entity in list(found) if entity.casefold() in entities}

    async def _ping(self, entity: str) -> None:
        if entity.casefold() not in self._pinged:
            async with self.pair.sender(entity):
                pass  # entering it takes over the shared health, and pings one that was left failed over
            if entity.casefold() in self._pinged:
                return
        await self.pair.ping(entity)

    async def _glimpse(self) -> BacklogSurvey:
        from servicebus_pair.core.backlog import backlog_queues
        from servicebus_pair.core.survey import BacklogSurvey

        pair = self.pair
        queues = backlog_queues(pair.primary.namespace, pair.options.backlog_queue_count)
        return BacklogSurvey.total(await asyncio.gather(*(_first_page(pair, queue) for queue in queues)))

    async def serve(self, hook: ServiceBusPairHook, opened: asyncio.Future[WatchedPair], left: asyncio.Event) -> None:
        """Keep the pair open until everybody has ``left``; the task of the lease."""
        try:
            async with hook.pair(observers=[self]) as self._pair:
                opened.set_result(self)
                await left.wait()
                await self._pings.close()
                await self._depths.close()
                await self._glimpses.close()
        except Exception as error:  # noqa: BLE001  whatever stands in the way is told to those who wait
            if opened.done():
                _log.exception("conn_id=%s: closing the shared pair failed", hook.conn_id)
            else:
                opened.set_exception(error)
        finally:
            self._pair = None


async def _first_page(pair: NamespacePair, queue: str) -> BacklogSurvey:
    from servicebus_pair.core.survey import BacklogSurvey

    try:
        return await pair.syphon([queue]).survey(first_page=True)
    except EntityNotFoundError:  # not provisioned yet, so nothing can be in it
        return BacklogSurvey()


class _Lease:
    """One open pair, its users, and the task that opened it and will close it."""

    def __init__(self, hook: ServiceBusPairHook, settings: PairSettings) -> None:
        self.settings = settings
        self.users = 0
        self._opened: asyncio.Future[WatchedPair] = asyncio.get_running_loop().create_future()
        self._left = asyncio.Event()
        serving = WatchedPair().serve(hook, self._opened, self._left)
        # Not in the context of its first user, who may leave long before the last one.
        self._task = asyncio.get_running_loop().create_task(serving, name=f"pair {hook.conn_id}", context=Context())

    async def enter(self) -> WatchedPair:
        """Return the pair once it is open."""
        return await asyncio.shield(self._opened)

    def end(self) -> Awaitable[Any]:
        """Have the pair closed; what is returned ends when it is."""
        self._left.set()
        return asyncio.shield(asyncio.gather(self._task, return_exceptions=True))


# By connection, of the event loop that runs: a triggerer has one.
_leases: dict[tuple[int, str], list[_Lease]] = {}


@asynccontextmanager
async def watched_pair(hook: ServiceBusPairHook) -> AsyncIterator[WatchedPair]:
    """Share one open pair with everybody in this event loop who uses the same connection.

    The connection is read each time: one that was edited meanwhile is another pair, and the old one
    is closed when its last user leaves.

    :raises ConfigurationError: as in ``ServiceBusPairHook.get_settings``.
    """
    settings = await hook.aget_settings()
    leases = _leases.setdefault((id(asyncio.get_running_loop()), hook.conn_id), [])
    lease = next((each for each in leases if each.settings == settings), None)
    if lease is None:
        leases.append(lease := _Lease(hook, settings))
    lease.users += 1
    try:
        yield await lease.enter()
    finally:
        lease.users -= 1
        if lease.users == 0:
            leases.remove(lease)
            if not leases:
                _leases.pop((id(asyncio.get_running_loop()), hook.conn_id), None)
            await lease.end()
