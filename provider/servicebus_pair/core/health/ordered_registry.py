"""Health with ``ordering="session"``: no two processes act on different routes at the same time (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from math import inf
from typing import Any, Final

from servicebus_pair.core.health.leases import Leases
from servicebus_pair.core.health.registry import HealthRegistry
from servicebus_pair.core.model.errors import HealthStoreError
from servicebus_pair.core.model.health_state import EntityHealth, HealthState
from servicebus_pair.core.model.health_transitions import (
    AbandonFailback,
    Action,
    CompleteFailback,
    Decision,
    HealthEvent,
    decide,
)
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.model.options import PairOptions

_log = get_logger(__name__)
_SAVE_ATTEMPTS: Final = 3
_RETRY_SECONDS: Final = 0.2


class OrderedHealthRegistry(HealthRegistry):
    """A registry whose health in the store is not soft: a process acts on it under a lease, and only once it settled.

    Every change of route is decided on health that was loaded for it, saved, and then known here. Without a shared
    store, changes apply at once.
    """

    def __init__(self, options: PairOptions, **given: Any) -> None:
        super().__init__(options, **given)
        self.leases = Leases(self._refresh_seconds)
        self._settle_seconds = self._refresh_seconds if self._shared else 0.0
        self._changing: dict[tuple[str, type[HealthEvent]], asyncio.Task[None]] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._waiting: Counter[str] = Counter()

    @property
    def is_shared(self) -> bool:
        """Whether other processes may act on the same health."""
        return self._shared

    def apply(self, entity: str, event: HealthEvent) -> EntityHealth:
        """Apply ``event``; a change that other processes must know is made in the background, see :meth:`change`."""
        before = self.current(entity)
        decision = self._decide(before, event, self._clock.now())
        if not self._shared or Action.PUBLISH not in decision.actions:
            return super().apply(entity, event)
        key = entity.casefold(), type(event)
        if key not in self._changing or self._changing[key].done():
            change = asyncio.get_running_loop().create_task(self._try_change(entity, event), name="change health")
            self._changing[key] = change
        return before

    async def change(self, entity: str, event: HealthEvent) -> bool:
        """Apply ``event`` to the health that the store holds now, and save the result.

        :raises HealthStoreError: the store cannot be read or written.
        """
        if not self._shared:
            return await super().change(entity, event)
        async with self._locks[entity.casefold()]:
            for _ in range(_SAVE_ATTEMPTS):
                if not await asyncio.shield(self._load_soon(entity)):
                    break
                before, now = self.current(entity), self._clock.now()
                if isinstance(event, CompleteFailback) and before.since < now - self.leases.complete_within:
                    event = AbandonFailback(event.token)  # others may abandon it by now
                decision = self._decide(before, event, now)
                if Action.PUBLISH not in decision.actions:
                    self._execute(entity, before, decision, now)
                    return True
                if self.leases.loaded_at(entity) >= now - self.leases.save_window:
                    await self._save_decision(entity, decision, now)
                    return True
        raise HealthStoreError(
            f"the health of {entity} cannot be changed: the shared store cannot be read, or takes longer than "
            f"{self.leases.save_window:g} s, a quarter of health_refresh"
        )

    async def lease(self, entity: str, *, timeout: float, unspools: bool = False) -> EntityHealth:
        """Return settled health that may be acted on for :meth:`lease_seconds_left`.

        Waits while the entity fails back, and until other processes have noticed a change.

        :param timeout: seconds.
        :param unspools: what is sent comes from the spool, for which the others wait.
        :raises HealthStoreError: the store cannot be read.
        :raises TimeoutError: the health did not settle within ``timeout``.
        """
        deadline = self._clock.now() + timeout
        key = entity.casefold()
        self._waiting[key] += 1
        try:
            while True:
                await self._changed_in_background(key, deadline)
                await self._renew(entity, deadline)
                health, now = self.current(entity), self._clock.now()
                seconds = self._seconds_to_wait(entity, health, now, unspools=unspools)
                if seconds <= 0:
                    return health
                if now >= deadline:
                    raise TimeoutError(f"the health of {entity} did not settle within {timeout:g} s: {health.reason}")
                if self._shared and self.leases.is_abandoned(entity, health, now):
                    await self.change(entity, AbandonFailback(health.token))
                else:
                    await self.wait_for_change(entity, timeout=min(seconds, deadline - now))
        finally:
            self._waiting[key] -= 1

    def lease_seconds_left(self, entity: str) -> float:
        """Return for how long the health of ``entity`` may be acted on; at most 0 if it must be loaded first."""
        return self.leases.seconds_left(entity, self._clock.now()) if self._shared else inf

    async def hold_lease(self, entity: str, health: EntityHealth) -> None:
        """Renew the lease of ``health``; return when it ends, after which nothing may be sent on its route."""
        ends = self._clock.now() + self.lease_seconds_left(entity)
        while (now := self._clock.now()) < ends:
            current = self.current(entity)
            if (current.epoch, current.route, current.spool) != (health.epoch, health.route, health.spool):
                await self._clock.sleep(ends - now)
                continue
            ends = now + self.lease_seconds_left(entity)
            renewal = ends - self.leases.duration / 2
            if now < renewal:
                await self.wait_for_change(entity, timeout=min(renewal - now, self.leases.duration))
            elif not await self._loaded(entity, timeout=ends - now):
                await self._clock.sleep(min(_RETRY_SECONDS, ends - self._clock.now()))

    def waiting(self, entity: str) -> int:
        """Return how many callers wait in :meth:`lease`; they send nothing."""
        return self._waiting[entity.casefold()]

    async def abandon_dead_failback(self, entity: str) -> None:
        """Fail over again if the process that began a failback has died. :raises HealthStoreError: as above."""
        health = self.current(entity)
        if self._shared and self.leases.is_abandoned(entity, health, self._clock.now()):
            await self.change(entity, AbandonFailback(health.token))

    async def flush(self) -> None:
        """Wait for changes in the background as well."""
        changing = [change for change in self._changing.values() if not change.done()]
        if changing:
            await asyncio.wait(changing, timeout=self._refresh_seconds)
        await super().flush()

    async def close(self) -> None:
        """Flush, then cancel what is left."""
        await self.flush()
        for change in self._changing.values():
            change.cancel()
        await asyncio.gather(*self._changing.values(), return_exceptions=True)
        await super().close()

    def _decide(self, before: EntityHealth, event: HealthEvent, now: float) -> Decision:
        return decide(
            before, event, now=now, failover_interval=self._failover_interval, settle_seconds=self._settle_seconds
        )

    def _merged(
        self, entity: str, known: EntityHealth, shared: EntityHealth | None, *, began: float, now: float
    ) -> EntityHealth:
        if not self._shared:
            return known
        self.leases.loaded(entity, began=began)
        # An entity that the store does not know is healthy: nobody has failed it over.
        return self.leases.adopt(entity, known, EntityHealth() if shared is None else shared, now)

    async def _save_decision(self, entity: str, decision: Decision, now: float) -> None:
        try:
            await self._store.save(entity, decision.health)
        except Exception as error:
            self._record_store_failure(f"entity={entity}: its health could not be changed", error)
            raise HealthStoreError(f"the health of {entity} cannot be written to the shared store: {error}") from error
        self._record_store_success()
        self.leases.saved(entity, self.current(entity), decision.health, self._clock.now())
        self._execute(entity, self.current(entity), decision, now)

    async def _try_change(self, entity: str, event: HealthEvent) -> None:
        try:
            await self.change(entity, event)
        except HealthStoreError as error:
            _log.warning("%s; it is tried again with the next reason for it", error)

    async def _changed_in_background(self, key: str, deadline: float) -> None:
        """Wait for changes of this entity that this process has decided on."""
        changing = [task for (entity, _), task in self._changing.items() if entity == key and not task.done()]
        if changing:
            await asyncio.wait(changing, timeout=min(deadline - self._clock.now(), self._refresh_seconds))

    async def _renew(self, entity: str, deadline: float) -> None:
        if self.lease_seconds_left(entity) >= self.leases.duration / 2:
            return
        # A store that fails for a moment is not a reason to stop.
        began = self._clock.now()
        give_up = min(deadline, began + self._refresh_seconds)
        while True:
            now = self._clock.now()
            if await self._loaded(entity, timeout=give_up - now) and self.lease_seconds_left(entity) > 0:
                return
            if now >= give_up:
                break
            await self._clock.sleep(_RETRY_SECONDS)
        if self.lease_seconds_left(entity) <= 0:
            if give_up <= began:
                raise TimeoutError(f"no time was left to read the health of {entity}")
            raise HealthStoreError(
                f"the health of {entity} cannot be read from the shared store: without it, this process cannot keep "
                "the order of sessions and sends nothing; repair the store and send again"
            )

    async def _loaded(self, entity: str, *, timeout: float) -> bool:
        loading = self._load_soon(entity)
        await asyncio.wait({loading}, timeout=timeout)
        return loading.done() and not loading.cancelled() and loading.result()

    def _seconds_to_wait(self, entity: str, health: EntityHealth, now: float, *, unspools: bool) -> float:
        if health.state is HealthState.FAILING_BACK and not (unspools and health.spool):
            return self.leases.duration / 2
        return self.leases.seconds_to_settle(entity, now)
