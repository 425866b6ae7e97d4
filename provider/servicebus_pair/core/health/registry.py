"""Health of all entities of a pair in this process: applies transitions, shares them and notifies observers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from servicebus_pair.core.model.errors import ObserverError
from servicebus_pair.core.model.events import Event, HealthChanged, Observer
from servicebus_pair.core.model.health_state import (
    HEALTHY,
    Action,
    EntityHealth,
    HealthEvent,
    HealthState,
    decide,
    merge,
)
from servicebus_pair.core.model.interfaces import Clock, HealthStore
from servicebus_pair.core.model.options import PairOptions

__all__ = ["HealthRegistry"]

_log = logging.getLogger(__name__)
_STORE_TIMEOUT: Final = 5.0
_HANGING_STORE_TIMEOUT: Final = 0.5


class HealthRegistry:
    """Keeps one health per entity, in memory and through the store (SPEC section 4).

    Entity paths are compared case-insensitively.

    :ivar on_failed_over: called with the entity when its pings must start.
    :ivar on_recovered: called with the entity when its pings must stop.
    """

    def __init__(
        self,
        options: PairOptions,
        *,
        store: HealthStore,
        observers: Sequence[Observer],
        clock: Clock,
    ) -> None:
        self._failover_interval = options.failover_interval.total_seconds()
        # A shared failover without a ping for two intervals may belong to a process that has ended.
        self._failover_max_age = 2 * options.ping_primary_interval.total_seconds()
        self._ordered = options.ordering == "session"
        self._store = store
        self._observers = list(observers)
        self._clock = clock
        self._health: dict[str, EntityHealth] = {}
        self._changed: dict[str, asyncio.Event] = {}
        self._unsaved: dict[str, EntityHealth] = {}
        self._saving: dict[str, asyncio.Task[bool]] = {}
        self._refreshing: set[asyncio.Task[EntityHealth]] = set()
        self._store_hangs = False
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
        before = self.current(entity)
        now = self._clock.now()
        decision = decide(before, event, now=now, failover_interval=self._failover_interval)
        self._set(entity, before, decision.health, now)
        if Action.PUBLISH in decision.actions:
            self._share(entity, decision.health)
        if decision.health.state is HealthState.SUSPECT and before.state is HealthState.HEALTHY:
            # If another process has failed over already, the send need not wait for the failover interval.
            self._refresh_soon(entity)
        if Action.START_PING in decision.actions:
            self.on_failed_over(entity)
        if Action.STOP_PING in decision.actions:
            self.on_recovered(entity)
        return decision.health

    async def refresh(self, entity: str, *, timeout: float = _STORE_TIMEOUT) -> EntityHealth:
        """Adopt what other processes have shared about ``entity``, if it is newer.

        :param timeout: seconds to wait for the store; at most 0.5 s while it does not respond.
        """
        try:
            shared = await asyncio.wait_for(self._store.load(entity), self._store_timeout(timeout))
        except Exception as error:  # noqa: BLE001 - the user's store may raise anything; health works without it
            self._record_store_failure(error, timeout=timeout)
            _log.exception("entity=%s: shared health could not be read", entity)
            return self.current(entity)
        self._store_hangs = False
        before = self.current(entity)
        if shared is None:
            return before
        now = self._clock.now()
        after = merge(before, shared, now=now, max_age=self._failover_max_age)
        if self._ordered and before.failed_over and not after.failed_over:
            # The other process may not have seen what this one diverted: only our own ping may fail back.
            return before
        self._set(entity, before, after, now)
        if after.failed_over and not before.failed_over:
            self.on_failed_over(entity)
        if before.failed_over and not after.failed_over:
            self.on_recovered(entity)
        return after

    async def wait_for_change(self, entity: str, *, timeout: float) -> None:
        """Wait until the state of ``entity`` changes, at most ``timeout`` seconds."""
        changed = self._changed.setdefault(entity.casefold(), asyncio.Event())
        waiting = asyncio.ensure_future(changed.wait())
        sleeping = asyncio.ensure_future(self._clock.sleep(timeout))
        try:
            await asyncio.wait({waiting, sleeping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            sleeping.cancel()

    def emit(self, event: Event) -> None:
        """Pass ``event`` to every observer, in order, even if one raises.

        :raises ObserverError: an observer raised. The event has happened nevertheless.
        """
        failures: list[Exception] = []
        for observer in self._observers:
            try:
                observer.observe(event)
            except Exception as failure:  # noqa: BLE001 - the user's observer may raise anything
                failures.append(failure)
        if failures:
            raise ObserverError(
                f"{len(failures)} of {len(self._observers)} observers failed on {type(event).__name__}, "
                f"first {type(failures[0]).__name__}: {failures[0]}"
            ) from failures[0]

    def emit_best_effort(self, event: Event) -> None:
        """Like :meth:`emit`, but log an observer's error: no message depends on this event."""
        try:
            self.emit(event)
        except ObserverError:
            _log.exception("an observer missed an event; sending goes on")

    @contextmanager
    def observing(self, observer: Observer) -> Iterator[None]:
        """Add ``observer`` for the duration of the context."""
        self._observers.append(observer)
        try:
            yield
        finally:
            self._observers.remove(observer)

    async def saved(self, entity: str) -> bool:
        """Wait for the save of ``entity``'s health in progress, like :meth:`flush`; return False if it failed."""
        saving = self._saving.get(entity.casefold())
        if saving is None:
            return True  # this process wrote nothing: what it knows came from the store
        await asyncio.wait({saving}, timeout=self._store_timeout(_STORE_TIMEOUT))
        return saving.done() and not saving.cancelled() and saving.result()

    async def flush(self) -> None:
        """Wait until all changes are in the store, at most 5 s, or 0.5 s while it does not respond."""
        pending = {*self._saving.values(), *self._refreshing}
        if pending:
            await asyncio.wait(pending, timeout=self._store_timeout(_STORE_TIMEOUT))

    async def close(self) -> None:
        """Flush, then cancel what is left."""
        await self.flush()
        for entity, saving in self._saving.items():
            if not saving.done():
                _log.error("entity=%s: its health was not shared before closing: the store does not answer", entity)
        remaining = [task for task in (*self._saving.values(), *self._refreshing) if not task.done()]
        for task in remaining:
            task.cancel()
        await asyncio.gather(*remaining, return_exceptions=True)

    def _set(self, entity: str, before: EntityHealth, after: EntityHealth, now: float) -> None:
        self._health[entity.casefold()] = after
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

    def _refresh_soon(self, entity: str) -> None:
        task = asyncio.get_running_loop().create_task(self.refresh(entity), name=f"refresh health of {entity}")
        self._refreshing.add(task)
        task.add_done_callback(self._refreshing.discard)

    def _record_store_failure(self, error: Exception, *, timeout: float) -> None:
        """Consider the store hanging after a full timeout; a slow store with a short timeout remains usable."""
        if isinstance(error, TimeoutError) and timeout >= _STORE_TIMEOUT:
            self._store_hangs = True

    def _store_timeout(self, timeout: float) -> float:
        return min(timeout, _HANGING_STORE_TIMEOUT) if self._store_hangs else timeout

    def _share(self, entity: str, health: EntityHealth) -> None:
        # One save at a time per entity, since the last write wins; a slow store receives only the newest health.
        key = entity.casefold()
        self._unsaved[key] = health
        saving = self._saving.get(key)
        if saving is None or saving.done():
            self._saving[key] = asyncio.get_running_loop().create_task(self._save(entity), name=f"share {entity}")

    async def _save(self, entity: str) -> bool:
        stored = False
        while (health := self._unsaved.pop(entity.casefold(), None)) is not None:
            try:
                await asyncio.wait_for(self._store.save(entity, health), _STORE_TIMEOUT)
                stored = True
            except Exception as error:  # noqa: BLE001 - as above; the next change is shared again
                stored = False
                self._record_store_failure(error, timeout=_STORE_TIMEOUT)
                _log.exception("entity=%s: sharing its health failed; other processes find out by themselves", entity)
        return stored
