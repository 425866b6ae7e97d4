"""What happened at one queue or sub-queue since the process began, in numbers; not kept over a restart."""

from __future__ import annotations

from dataclasses import dataclass, fields

__all__ = ["Tally"]


@dataclass(slots=True)
class Tally:
    """Counters that only grow.

    :ivar delivered: messages handed to receivers, those received and deleted included.
    :ivar deleted: messages received and deleted.
    :ivar completed, abandoned, released, deferred, rejected: settlements, as receivers asked for them; rejected is to
        the dead-letter queue.
    :ivar expired: messages whose time to live was over.
    :ivar dead_lettered: messages that went to the dead-letter queue, for whatever reason.
    :ivar locks_lost: locks of messages and of sessions that ended by time.
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

    def add(self, other: Tally) -> None:
        """Add what happened elsewhere."""
        for field in fields(self):
            setattr(self, field.name, getattr(self, field.name) + getattr(other, field.name))
