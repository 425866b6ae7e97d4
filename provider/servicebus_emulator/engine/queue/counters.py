"""Counters of one queue or subqueue since the process started."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Counters:
    """Monotonic counters, not persisted.

    :ivar delivered: messages delivered to receivers, including those received in receive-and-delete mode.
    :ivar deleted: messages received in receive-and-delete mode.
    :ivar completed, abandoned, released, deferred, rejected: settlements by receivers; rejected messages are
        dead-lettered.
    :ivar expired: messages whose time to live elapsed.
    :ivar dead_lettered: messages moved to the dead-letter queue, for any reason.
    :ivar locks_lost: message and session locks that expired.
    """

    delivered: int = 0
    deleted: int = 0
    completed: int = 0
    abandoned: int = 0
    released: int = 0
    deferred: int = 0
    rejected: int = 0
    expired: int = 0
    dead_lettered: int = 0
    locks_lost: int = 0

    def add(self, other: Counters) -> None:
        """Add another queue's counters."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
