"""What syphons say about the backlog of an entity that is failed over in session order (SPEC section 6).

Only whoever has a session locked can see what is left in it. Others need that to know when a failback is worth while:
it travels with the health of the entity, once after each ping.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from servicebus_pair.core.health.ordered_registry import OrderedHealthRegistry
from servicebus_pair.core.model.health_state import HealthState
from servicebus_pair.core.model.health_transitions import CaughtUp
from servicebus_pair.core.model.interfaces import Clock


@dataclass(frozen=True, slots=True)
class _Report:
    """Session queues, by index, that were found nearly empty since a ping."""

    ping: float | None
    queues: frozenset[int]
    made_at: float


class BacklogReports:
    """The reports of the syphons of this process.

    :param session_queues: paths of the backlog queues that require sessions, in the same order in every process.
    """

    def __init__(self, registry: OrderedHealthRegistry, session_queues: Sequence[str], *, clock: Clock) -> None:
        self._registry = registry
        self._indexes = {queue: index for index, queue in enumerate(session_queues)}
        self._clock = clock
        self._reports: dict[str, _Report] = {}

    def watch(self, entity: str) -> None:
        """Keep the health of ``entity`` fresh while its messages are moved, until :meth:`unwatch`."""
        self._registry.watch(entity)

    def unwatch(self, entity: str) -> None:
        """End one :meth:`watch`."""
        self._registry.unwatch(entity)

    def is_wanted(self, entity: str, queue: str) -> bool:
        """Return whether it matters now how much is left for ``entity`` in ``queue``."""
        health, index = self._registry.current(entity), self._indexes.get(queue)
        if health.state is not HealthState.FAILED_OVER or health.last_ping is None:
            return False
        if index is None or index in health.caught_up:
            return False
        last = self._reports.get(entity.casefold())
        if last is None or last.ping != health.last_ping or index not in last.queues:
            return True
        # It did not reach the store, or was overwritten there; before that time, it may not be readable yet.
        return self._clock.now() >= last.made_at + self._registry.leases.refresh

    def caught_up(self, entity: str, queue: str) -> None:
        """Report to all processes that little is left for ``entity`` in ``queue``."""
        ping, last = self._registry.current(entity).last_ping, self._reports.get(entity.casefold())
        queues = frozenset({self._indexes[queue]})
        if last is not None and last.ping == ping:
            queues |= last.queues
        self._reports[entity.casefold()] = _Report(ping, queues, self._clock.now())
        self._registry.apply(entity, CaughtUp(queues))
