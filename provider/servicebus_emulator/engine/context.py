"""What every part of one namespace shares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from servicebus_emulator.engine.clock import Clock
from servicebus_emulator.engine.effects import Effects
from servicebus_emulator.engine.journal import Journal
from servicebus_emulator.engine.message import Content
from servicebus_emulator.engine.rules import PropertyCodec

__all__ = ["Context", "Sequence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The surroundings of a queue.

    :ivar random_bytes: returns as many random bytes as asked for; lock tokens are cut from them.
    :ivar identify: returns what tells one message from another where duplicates are detected.
    :ivar rows: yields journal keys that were never used before.
    :ivar codec: reads and changes the properties of messages, for the rules of subscriptions.
    :ivar deliver_pings: whether a ping is a message like any other; if not, it is accepted and never stored.
    """

    clock: Clock
    journal: Journal
    effects: Effects
    random_bytes: Callable[[int], bytes]
    identify: Callable[[Content], bytes]
    rows: Iterator[int]
    codec: PropertyCodec
    deliver_pings: bool


class Sequence:
    """The sequence numbers of one entity, shared by its queue and sub-queues; never used twice."""

    __slots__ = ("_context", "_entity", "accessed", "last")

    def __init__(self, entity: int, *, context: Context, last: int, accessed: int) -> None:
        self._entity = entity
        self._context = context
        self.last = last
        self.accessed = accessed

    def next(self) -> int:
        """Return a new number, one higher than the last."""
        return self.take(1)[0]

    def take(self, count: int) -> list[int]:
        """Return that many new numbers."""
        first = self.last + 1
        self.last += count
        self.touch()
        return list(range(first, first + count))

    def touch(self) -> None:
        """Note that the entity is in use."""
        self.accessed = self._context.clock.now()
        self._context.journal.use_entity(self._entity, last_number=self.last, accessed=self.accessed)
