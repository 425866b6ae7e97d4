"""Health of all entities of a pair in this process: applies transitions, shares them and notifies observers."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Final

from servicebus_pair.core.health.store_calls import StoreCalls
from servicebus_pair.core.model.errors import ObserverError
from servicebus_pair.core.model.events import Event, HealthChanged, Observer
from servicebus_pair.core.model.health_state import HEALTHY, EntityHealth, HealthState, merge
from servicebus_pair.core.model.health_transitions import Action, Decision, HealthEvent, decide
from servicebus_pair.core.model.interfaces import (
    BlockingHealthStore,
    Clock,
    HealthStore,
    InMemoryHealthStore,
    sleep_until_set,
)
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.model.options import PairOptions

_log = get_logger(__name__)
_STORE_TIMEOUT: Final = 5.0
# Of health_refresh: shared health is read again after this part of it, so that the reading itself may take the rest.
_REFRESH_FRACTION: Final = 0.8


class HealthRegistry:
    """Keeps one health per entity, in memory and through the store (SPEC section 4).

    Entity paths are compared case-insensitively. The health of entities that are watched or failed over is read again
    from a shared store within every ``health_refresh``.

    :param store: shared with other processes, or with other pairs of this one; ``None`` for health of this pair alone.
    :ivar observers: receive every event, in order.
    :ivar on_failed_over: called with the entity when its pings must start.
    :ivar on_recovered: called with the entity when its pings must stop.
    """

    def __init__(
        self,
        options: PairOptions,
        *,
        store: HealthStore | BlockingHealthStore | None,
        observers: Sequence[Observer],
        clock: Clock,
    ) -> None:
        self._failover_interval = options.failover_interval.total_seconds()
        # A shared failover without a ping for two intervals may belong to a process that has ended.
        self._failover_max_age = 2 * options.ping_primary_interval.total_seconds()
        self._shared = store is not None
        self._store = StoreCalls(InMemoryHealthStore() if store is None else store)
        self._refresh_seconds = options.health_refresh.total_seconds()
        self.observers = list(observers)
        self._clock = clock
        self._health: dict[str, EntityHealth] = {}
        self._changed: dict[str, asyncio.Event] = {}
        self._unsaved: dict[str, EntityHealth] = {}
        self._saving: dict[str, asyncio.Task[bool]] = {}
        self._loading: dict[str, asyncio.Task[bool]] = {}
        self._store_fails = False
        self._watched: Counter[str] = Counter()
        # Paths as callers write them, which stores and observers receive.
        self._names: dict[str, str] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self.on_failed_over: Callable[[str], None] = lambda _: None
        self.on_recovered: Callable[[str], None] = lambda _: None

    def current(self, entity: str) -> EntityHealth:
        """Return the health of ``entity`` as this process knows it; unknown entities are healthy."""
        return self._health.get(entity.casefold(), HEALTHY)

    def entities(self) -> dict[str, EntityHealth]:
        """Return the health of every known entity, by folded path."""
        return dict(self._health)

    def apply(self, entity: str, event: HealthEvent) -> EntityHealth:
        """Apply ``event`` to ``entity``; share the new health and notify observers."""
        before, now = self.current(entity), self._clock.now()
        decision = self._decide(before, event, now)
        self._execute(entity, before, decision, now)
        if Action.PUBLISH in decision.actions:
            self._share(entity, decision.health)
        return decision.health

    async def change(self, entity: str, event: HealthEvent) -> bool:
        """Apply ``event``, and return whether the store holds the result."""
        self.apply(entity, event)
        return await self.saved(entity)

    def watch(self, entity: str) -> None:
        """Keep the health of ``entity`` as fresh as ``health_refresh`` says, until :meth:`unwatch`."""
        self._watched[entity.casefold()] += 1
        self._names.setdefault(entity.casefold(), entity)
        self._start_refreshing()

    def unwatch(self, entity: str) -> None:
        """End one :meth:`watch` of ``entity``."""
        self._watched -= Counter([entity.casefold()])

    async def refresh(self, entity: str, *, timeout: float = _STORE_TIMEOUT) -> EntityHealth:
        """Adopt what other processes have shared about ``entity``, if it is newer.

        Later than ``timeout``, the store's answer is still adopted when it arrives.

        :param timeout: seconds to wait for the store, which is not waited for while it hangs.
        """
        await asyncio.wait({self._load_soon(entity)}, timeout=timeout)
        return self.current(entity)

    async def lease(self, entity: str, *, timeout: float, unspools: bool = False) -> EntityHealth:  # noqa: ARG002 - of the subclass
        """Return the health that an attempt to send obeys; with session order, see ``OrderedHealthRegistry``."""
        return self.current(entity)

    def lease_seconds_left(self, entity: str) -> float:  # noqa: ARG002 - as above
        """Return for how long the health of ``entity`` may be acted on; at most 0 if it must be loaded first."""
        return inf

    async def wait_for_change(self, entity: str, *, timeout: float) -> None:
        """Wait until the state of ``entity`` changes, at most ``timeout`` seconds."""
        changed = self._changed.setdefault(entity.casefold(), asyncio.Event())
        await sleep_until_set(self._clock, timeout, changed)

    def emit(self, event: Event) -> None:
        """Pass ``event`` to every observer, in order, even if one raises.

        :raises ObserverError: an observer raised. The event has happened nevertheless.
        """
        failures: list[Exception] = []
        for observer in self.observers:
            try:
                observer.observe(event)
            except Exception as failure:  # noqa: BLE001 - the user's observer may raise anything
                failures.append(failure)
        if failures:
            first, *_ = failures
            raise ObserverError(
                f"{len(failures)} of {len(self.observers)} observers failed on {type(event).__name__}, "
                f"first {type(first).__name__}: {first}"
            ) from first

    def emit_best_effort(self, event: Event) -> None:
        """Like :meth:`emit`, but log an observer's error: no message depends on this event."""
        try:
            self.emit(event)
        except ObserverError:
            _log.exception("an observer missed an event; sending goes on")

    @contextmanager
    def observing(self, observer: Observer) -> Iterator[None]:
        """Add ``observer`` for the duration of the context."""
        self.observers.append(observer)
        try:
            yield
        finally:
            self.observers.remove(observer)

    async def saved(self, entity: str) -> bool:
        """Wait for the save of ``entity``'s health in progress, like :meth:`flush`; return False if it failed."""
        saving = self._saving.get(entity.casefold())
        if saving is None:
            return True  # this process wrote nothing: what it knows came from the store
        await asyncio.wait({saving}, timeout=_STORE_TIMEOUT)
        return saving.done() and not saving.cancelled() and saving.result()

    async def flush(self) -> None:
        """Wait until all changes are in the store, at most 5 s, and not while it hangs."""
        pending = [saving for saving in self._saving.values() if not saving.done()]
        if pending:
            await asyncio.wait(pending, timeout=_STORE_TIMEOUT)

    async def close(self) -> None:
        """Flush, then cancel what is left; nothing is watched any more."""
        await self.flush()
        unsaved = {*self._unsaved, *(entity for entity, saving in self._saving.items() if not saving.done())}
        for entity in sorted(unsaved):
            _log.error("entity=%s: its health was not shared before closing: the store does not accept it", entity)
        self._watched.clear()
        background = [*self._saving.values(), *self._loading.values(), *filter(None, [self._refreshing])]
        remaining = [task for task in background if not task.done()]
        for task in remaining:
            task.cancel()
        await self._store.close()
        await asyncio.gather(*remaining, return_exceptions=True)

    def _decide(self, before: EntityHealth, event: HealthEvent, now: float) -> Decision:
        return decide(before, event, now=now, failover_interval=self._failover_interval)

    def _execute(self, entity: str, before: EntityHealth, decision: Decision, now: float) -> None:
        self._set(entity, before, decision.health, now)
        if decision.health.state is HealthState.SUSPECT and before.state is HealthState.HEALTHY:
            # If another process has failed over already, the send need not wait for the failover interval.
            self._load_soon(entity)
        if Action.START_PING in decision.actions:
            self.on_failed_over(entity)
        if Action.STOP_PING in decision.actions:
            self.on_recovered(entity)

    def _set(self, entity: str, before: EntityHealth, after: EntityHealth, now: float) -> None:
        self._health[entity.casefold()] = after
        self._names.setdefault(entity.casefold(), entity)
        if after.failed_over:
            self._start_refreshing()
        if after.spool != before.spool:
            _log.warning("entity=%s spool=%s before=%s reason=%s", entity, after.spool, before.spool, after.reason)
        if after.state is before.state:
            return
        _log.warning(
            "entity=%s health=%s before=%s by=%s reason=%s",
            entity,
            after.state.value,
            before.state.value,
            after.by,
            after.reason,
        )
        self.emit_best_effort(HealthChanged(entity, before, after, now))
        changed = self._changed.pop(entity.casefold(), None)
        if changed is not None:
            changed.set()

    def _start_refreshing(self) -> None:
        if self._shared and (self._refreshing is None or self._refreshing.done()):
            loop = asyncio.get_running_loop()
            self._refreshing = loop.create_task(self._refresh_periodically(), name="refresh shared health")

    async def _refresh_periodically(self) -> None:
        pause = interval = _REFRESH_FRACTION * self._refresh_seconds
        while True:
            await self._clock.sleep(pause)
            began = self._clock.now()
            failed_over = (entity for entity, health in self._health.items() if health.failed_over)
            in_use = {*self._watched, *failed_over, *self._unsaved}
            if not in_use:
                return
            for entity in in_use:
                await self.refresh(self._names[entity])
                if entity in self._unsaved:
                    self._save_soon(entity)
            pause = began + interval - self._clock.now()

    def _load_soon(self, entity: str) -> asyncio.Task[bool]:
        """Load the shared health, or join the load in progress; the result says whether that worked."""
        key = entity.casefold()
        loading = self._loading.get(key)
        if loading is None or loading.done():
            loop = asyncio.get_running_loop()
            loading = self._loading[key] = loop.create_task(self._load(entity), name="load health")
        return loading

    async def _load(self, entity: str) -> bool:
        began = self._clock.now()
        try:
            shared = await self._store.load(entity)
        except Exception as error:  # noqa: BLE001 - the user's store may raise anything; health works without it
            self._record_store_failure(f"entity={entity}: shared health could not be read", error)
            return False
        self._record_store_success()
        before, now = self.current(entity), self._clock.now()
        after = self._merged(entity, before, shared, began=began, now=now)
        if after.since != before.since:
            self._unsaved.pop(entity.casefold(), None)  # another process has written newer health
        self._set(entity, before, after, now)
        if after.failed_over and not before.failed_over:
            self.on_failed_over(entity)
        if before.failed_over and not after.failed_over:
            self.on_recovered(entity)
        return True

    def _merged(
        self,
        _: str,
        known: EntityHealth,
        shared: EntityHealth | None,
        *,
        began: float,  # noqa: ARG002 - of the subclass
        now: float,
    ) -> EntityHealth:
        """Return the health after a load of ``shared`` that began at ``began``."""
        return known if shared is None else merge(known, shared, now=now, max_age=self._failover_max_age)

    def _record_store_failure(self, message: str, error: Exception) -> None:
        """Log the first of several failures in a row as a warning."""
        level = logging.DEBUG if self._store_fails else logging.WARNING
        self._store_fails = True
        _log.log(level, "%s; not logged again until the store answers: %s: %s", message, type(error).__name__, error)

    def _record_store_success(self) -> None:
        if self._store_fails:
            _log.info("the health store answers again")
        self._store_fails = False

    def _share(self, entity: str, health: EntityHealth) -> None:
        self._unsaved[entity.casefold()] = health
        self._save_soon(entity.casefold())

    def _save_soon(self, key: str) -> None:
        # One save at a time per entity, since the last write wins; a slow store receives only the newest health.
        saving = self._saving.get(key)
        if saving is None or saving.done():
            self._saving[key] = asyncio.get_running_loop().create_task(self._save(key), name="share health")

    async def _save(self, key: str) -> bool:
        entity = self._names[key]
        while (health := self._unsaved.pop(key, None)) is not None:
            try:
                await self._store.save(entity, health)
            except Exception as error:  # noqa: BLE001 - as above
                self._record_store_failure(f"entity={entity}: sharing its health failed", error)
                self._unsaved.setdefault(key, health)
                self._start_refreshing()
                return False
            self._record_store_success()
        return True
