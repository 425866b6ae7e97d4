"""Counts what a task sent and moved, per route and dataset; needs no OpenLineage packages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from servicebus_pair.core.events import (
    DeadLettered,
    Event,
    MessageRef,
    MessagesAccepted,
    MessagesSyphoned,
    MessagesUnspooled,
)

if TYPE_CHECKING:
    from servicebus_pair.core import NamespacePair

SYPHONED: Final = "syphoned"
DEAD_LETTERED: Final = "dead_lettered"


@dataclass(frozen=True, slots=True)
class RouteTotals:
    """Messages and bytes that took one route.

    :param route: ``primary``, ``backlog`` or ``spooled`` for sent messages, the first two for messages that left the
        spool, too; ``syphoned`` or ``dead_lettered`` for messages that left a backlog queue.
    :param entity: path of the entity on the primary; ``None`` for dead letters.
    :param queue: path of the backlog queue; ``None`` for the route ``primary``.
    :param bytes: encoded size; always 0 for dead letters, whose size is unknown.
    """

    route: str
    entity: str | None
    queue: str | None
    messages: int
    bytes: int


class TaskLineage:
    """Observer that totals messages by route, entity and backlog queue, over all pairs that one try of a task opens.

    Paths are lower case: Service Bus ignores case, but joins of lineage by dataset name do not.

    :param previous: the result of :meth:`to_json` before a deferral.
    """

    def __init__(self, previous: Iterable[Mapping[str, Any]] = ()) -> None:
        self._totals: dict[tuple[str, str | None, str | None], RouteTotals] = {}
        for each in previous:
            self._add(RouteTotals(**each))
        self.hosts: tuple[str, str] | None = None
        self.reads: tuple[str, ...] = ()
        self.writes: tuple[str, ...] = ()

    def set_endpoints(self, pair: NamespacePair, *, reads: Iterable[str] = (), writes: Iterable[str] = ()) -> None:
        """Set the namespaces and the datasets that the task declares, whether or not messages flow.

        :param reads: paths of the backlog queues that the task drains.
        :param writes: paths of the entities that the task sends to, by either route.
        """
        self.hosts = pair.primary.host.casefold(), pair.secondary.host.casefold()
        self.reads = tuple(path.casefold() for path in reads)
        self.writes = tuple(path.casefold() for path in writes)

    def observe(self, event: Event) -> None:
        """Count confirmed messages."""
        match event:
            case MessagesAccepted(entity, route, queue, messages) | MessagesUnspooled(entity, route, queue, messages):
                self._count(route.value, entity, queue, messages)
            case MessagesSyphoned(entity, queue, messages):
                self._count(SYPHONED, entity, queue, messages)
            case DeadLettered(queue):
                self._add(RouteTotals(DEAD_LETTERED, None, queue.casefold(), 1, 0))

    @property
    def totals(self) -> tuple[RouteTotals, ...]:
        """The totals so far, in the order of first use."""
        return tuple(self._totals.values())

    def to_json(self) -> list[dict[str, Any]]:
        """Return the totals as JSON values, to pass through a deferral."""
        return [asdict(each) for each in self._totals.values()]

    def _count(self, route: str, entity: str, queue: str | None, messages: tuple[MessageRef, ...]) -> None:
        size = sum(each.size_bytes for each in messages)
        backlog = None if queue is None else queue.casefold()
        self._add(RouteTotals(route, entity.casefold(), backlog, len(messages), size))

    def _add(self, more: RouteTotals) -> None:
        key = more.route, more.entity, more.queue
        known = self._totals.get(key)
        if known is not None:
            more = RouteTotals(*key, known.messages + more.messages, known.bytes + more.bytes)
        self._totals[key] = more
