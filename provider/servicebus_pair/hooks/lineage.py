"""What one task moved, and between which places; an observer, which needs nothing of OpenLineage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from servicebus_pair.core.events import DeadLettered, Event, MessageRef, MessagesAccepted, MessagesSyphoned

if TYPE_CHECKING:
    from servicebus_pair.core.pair import NamespacePair

__all__ = ["DEAD_LETTERED", "SYPHONED", "Moved", "TaskLineage"]

SYPHONED: Final = "syphoned"
DEAD_LETTERED: Final = "dead_lettered"


@dataclass(frozen=True, slots=True)
class Moved:
    """How much took one route.

    :param route: ``primary`` or ``backlog`` for what was sent, ``syphoned`` or ``dead_lettered`` for what left
        a backlog queue.
    :param entity: path of the entity of the primary; none for dead letters.
    :param queue: path of the backlog queue; none on the route ``primary``.
    :param bytes: encoded; unknown, and 0, for dead letters.
    """

    route: str
    entity: str | None
    queue: str | None
    messages: int
    bytes: int


class TaskLineage:
    """Counts messages and bytes by route, entity and backlog queue, over all pairs that one try of a task opens.

    Paths are in lower case: Service Bus does not tell cases apart, and who joins lineage by names does.

    :param carried: what :meth:`carry` returned before a deferral.
    """

    def __init__(self, carried: Iterable[Mapping[str, Any]] = ()) -> None:
        self._moved: dict[tuple[str, str | None, str | None], Moved] = {}
        for each in carried:
            self._add(Moved(**each))
        self.hosts: tuple[str, str] | None = None
        self.reads: tuple[str, ...] = ()
        self.writes: tuple[str, ...] = ()

    def opened(self, pair: NamespacePair, *, reads: Iterable[str] = (), writes: Iterable[str] = ()) -> None:
        """Take note of where the namespaces are.

        :param reads: paths of backlog queues that the task reads, messages in them or not.
        :param writes: paths of entities that the task sends to, whatever route its messages take.
        """
        self.hosts = pair.primary.host.casefold(), pair.secondary.host.casefold()
        self.reads = tuple(path.casefold() for path in reads)
        self.writes = tuple(path.casefold() for path in writes)

    def observe(self, event: Event) -> None:
        """Count what was confirmed."""
        match event:
            case MessagesAccepted(entity, route, queue, messages):
                self._count(route.value, entity, queue, messages)
            case MessagesSyphoned(entity, queue, messages):
                self._count(SYPHONED, entity, queue, messages)
            case DeadLettered(queue):
                self._add(Moved(DEAD_LETTERED, None, queue.casefold(), 1, 0))

    @property
    def moved(self) -> tuple[Moved, ...]:
        """What took each route so far, in the order of first use."""
        return tuple(self._moved.values())

    def carry(self) -> list[dict[str, Any]]:
        """Return the counts as JSON, to take through a deferral."""
        return [asdict(each) for each in self._moved.values()]

    def _count(self, route: str, entity: str, queue: str | None, messages: tuple[MessageRef, ...]) -> None:
        size = sum(each.size_bytes for each in messages)
        self._add(Moved(route, entity.casefold(), None if queue is None else queue.casefold(), len(messages), size))

    def _add(self, more: Moved) -> None:
        key = more.route, more.entity, more.queue
        known = self._moved.get(key)
        if known is not None:
            more = Moved(*key, known.messages + more.messages, known.bytes + more.bytes)
        self._moved[key] = more
