"""The services and state that all queues of one namespace share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from servicebus_emulator.engine.model.clock import Clock
from servicebus_emulator.engine.model.message import Content
from servicebus_emulator.engine.runtime.journal import Journal
from servicebus_emulator.engine.runtime.pending_effects import PendingEffects
from servicebus_emulator.engine.runtime.rule_set import PropertyCodec


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a queue needs from its namespace.

    :ivar random_bytes: returns the given number of random bytes; used for lock tokens and keys.
    :ivar identify: returns the identity of a message for duplicate detection.
    :ivar row_ids: yields journal keys that have never been used.
    :ivar codec: reads and rewrites message properties for subscription rules.
    :ivar deliver_pings: whether pings are delivered like other messages; otherwise they are accepted and discarded.
    """

    clock: Clock
    journal: Journal
    effects: PendingEffects
    random_bytes: Callable[[int], bytes]
    identify: Callable[[Content], bytes]
    row_ids: Iterator[int]
    codec: PropertyCodec
    deliver_pings: bool


class SequenceNumbers:
    """The sequence numbers of one entity, shared by its queue and subqueues and never reused.

    :ivar last: the last sequence number assigned.
    :ivar accessed: when the entity was last accessed, in milliseconds since 1970.
    """

    __slots__ = ("_context", "_entity", "accessed", "last")

    def __init__(self, entity: int, *, context: Context, last: int, accessed: int) -> None:
        self._entity = entity
        self._context = context
        self.last = last
        self.accessed = accessed

    def next(self) -> int:
        """Return a new sequence number."""
        return self.take(1)[0]

    def take(self, count: int) -> list[int]:
        """Return `count` new sequence numbers, ascending."""
        first = self.last + 1
        self.last += count
        self.touch()
        return list(range(first, first + count))

    def touch(self) -> None:
        """Record an access to the entity."""
        self.accessed = self._context.clock.now()
        self._context.journal.touch_entity(self._entity, last_number=self.last, accessed=self.accessed)
