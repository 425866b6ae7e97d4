"""The health of all entities of a pair in this process: applies decisions and tells everybody."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from servicebus_pair.core.errors import ObserverError
from servicebus_pair.core.events import Event, HealthChanged, Observer
from servicebus_pair.core.health import (
    HEALTHY,
    Action,
    EntityHealth,
    HealthEvent,
    State,
    decide,
    merge,
)
from servicebus_pair.core.options import PairOptions
from servicebus_pair.core.ports import Clock, HealthStore

__all__ = ["HealthBoard"]

_log = logging.getLogger(__name__)
_STORE_SECONDS: Final = 5.0
_HANGING_STORE_SECONDS: Final = 0.5


class HealthBoard:
    """Keeps one health per entity, in memory and through the store (SPEC section 4).

    Entity paths are compared without regard to case.

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
        self._interval = options.failover_interval.total_seconds()
        # A failover that nobody confirmed by a ping for two intervals may have been left behind.
        self._fresh = 2 * options.ping_primary_interval.total_seconds()
        self._ordered = options.ordering == "session"
        self._store = store
        self._observers = list(observers)
        self._clock = clock
        self._health: dict[str, EntityHealth] = {}
        self._changed: dict[str, asyncio.Event] = {}
        self._unsaved: dict[str, EntityHealth] = {}
        self._saving: dict[str, asyncio.Task[None]] = {}
        self._asking: set[asyncio.Task[EntityHealth]] = set()
        self._store_hangs = False
        self.on_failed_over: Callable[[str], None] = _nothing
        self.on_recovered: Callable[[str], None] = _nothing

    def current(self, entity: str) -> EntityHealth:
        """Answer what this process knows of ``entity``; healthy when it knows nothing."""
        return self._health.get(entity.casefold(), HEALTHY)

    def apply(self, entity: str, event: HealthEvent) -> EntityHealth:
        """Let ``event`` happen to ``entity``: decide, remember, share, tell observers."""
        before = self.current(entity)
        now = self._clock.now()
        decision = decide(before, event, now=now, failover_interval=self._interval)
        self._set(entity, before, decision.health, now)
        if Action.PUBLISH in decision.actions:
            self._share(entity, decision.health)
        if decision.health.state is State.SUSPECT and before.state is State.HEALTHY:
            self._ask(entity)
        if Action.START_PING in decision.actions:
            self.on_failed_over(entity)
        if Action.STOP_PING in decision.actions:
            self.on_recovered(entity)
        return decision.health

    async def refresh(self, entity: str, *, seconds: float = _STORE_SECONDS) -> EntityHealth:
        """Take over what other processes know of ``entity``, if it is news to this one.

        :param seconds: how long the store is waited for; at most 0.5 s while it does not answer.
        """
        before = self.current(entity)
        try:
            shared = await asyncio.wait_for(self._store.load(entity), self._patience(seconds))
        except Exception as error:  # noqa: BLE001 - a store is anybody's code; without it this process finds out
            self._note(error, patience=seconds)
            _log.exception("entity=%s: shared health could not be read", entity)
            return before
        self._store_hangs = False
        # What was known before the store answered may have changed meanwhile.
        before = self.current(entity)
        if shared is None:
            return before
        now = self._clock.now()
        after = merge(before, shared, now=now, fresh=self._fresh)
        if self._ordered and before.failed_over and not after.failed_over:
            # What this process has diverted, the other may not have seen: its own ping decides.
            return before
        self._set(entity, before, after, now)
        if after.failed_over and not before.failed_over:
            self.on_failed_over(entity)
        if before.failed_over and not after.failed_over:
            self.on_recovered(entity)
        return after

    def entities(self) -> dict[str, EntityHealth]:
        """Answer every entity this process knows, by folded path."""
        return dict(self._health)

    async def wait_for_change(self, entity: str, *, seconds: float) -> None:
        """Wait until the state of ``entity`` changes, at most ``seconds``."""
        changed = self._changed.setdefault(entity.casefold(), asyncio.Event())
        waiting = asyncio.ensure_future(changed.wait())
        pause = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait({waiting, pause}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            pause.cancel()

    def tell(self, event: Event) -> None:
        """Hand ``event`` to every observer, in order; the others are told even if one raises.

        :raises ObserverError: an observer raised. What happened has happened all the same.
        """
        failures: list[Exception] = []
        for observer in self._observers:
            try:
                observer.observe(event)
            except Exception as failure:  # noqa: BLE001 - an observer is anybody's code; raised below
                failures.append(failure)
        if failures:
            raise ObserverError(
                f"{len(failures)} of {len(self._observers)} observers failed on {type(event).__name__}, "
                f"first {type(failures[0]).__name__}: {failures[0]}"
            ) from failures[0]

    @contextmanager
    def watching(self, observer: Observer) -> Iterator[None]:
        """Tell ``observer`` too, as long as the context lasts."""
        self._observers.append(observer)
        try:
            yield
        finally:
            self._observers.remove(observer)

    def mention(self, event: Event) -> None:
        """Hand over an event on which no message depends: an observer that raises stops no failover, it is logged."""
        try:
            self.tell(event)
        except ObserverError:
            _log.exception("an observer missed an event; sending goes on")

    async def flush(self) -> None:
        """Wait until what was shared so far is in the store, at most 5 s, or 0.5 s while it does not answer."""
        pending = {*self._saving.values(), *self._asking}
        if pending:
            await asyncio.wait(pending, timeout=self._patience(_STORE_SECONDS))

    async def close(self) -> None:
        """Share what there is to share, as :meth:`flush`, and leave no task behind."""
        await self.flush()
        for entity, saving in self._saving.items():
            if not saving.done():
                _log.error("entity=%s: its health was not shared before closing: the store does not answer", entity)
        rest = [task for task in (*self._saving.values(), *self._asking) if not task.done()]
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

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
        self.mention(HealthChanged(entity, before, after, now))
        changed = self._changed.pop(entity.casefold(), None)
        if changed is not None:
            changed.set()

    def _ask(self, entity: str) -> None:
        """Find out, beside the send, whether others know already: then it need not wait for the interval."""
        task = asyncio.get_running_loop().create_task(self.refresh(entity), name=f"ask about {entity}")
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    def _note(self, error: Exception, *, patience: float) -> None:
        """Take the store for hanging once it was given all its time; one that is slow stays of use."""
        if isinstance(error, TimeoutError) and patience >= _STORE_SECONDS:
            self._store_hangs = True

    def _patience(self, seconds: float) -> float:
        return min(seconds, _HANGING_STORE_SECONDS) if self._store_hangs else seconds

    def _share(self, entity: str, health: EntityHealth) -> None:
        # One save at a time per entity, since the store keeps the last writer; a slow one is given the newest only.
        key = entity.casefold()
        self._unsaved[key] = health
        saving = self._saving.get(key)
        if saving is None or saving.done():
            self._saving[key] = asyncio.get_running_loop().create_task(self._save(entity), name=f"share {entity}")

    async def _save(self, entity: str) -> None:
        while (health := self._unsaved.pop(entity.casefold(), None)) is not None:
            try:
                await asyncio.wait_for(self._store.save(entity, health), _STORE_SECONDS)
            except Exception as error:  # noqa: BLE001 - as above; it is soft state, the next change shares again
                self._note(error, patience=_STORE_SECONDS)
                _log.exception("entity=%s: sharing its health failed; other processes find out by themselves", entity)


def _nothing(entity: str) -> None:
    """Stand in until a prober is there."""
