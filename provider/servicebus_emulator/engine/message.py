"""A message as the broker keeps it: what the sender handed over, and what became of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

__all__ = ["Content", "DeadLetterMark", "Journey", "Lock", "Message", "MessageState", "total_size"]


class MessageState(IntEnum):
    """Where a message is in its life; the numbers are those of ``x-opt-message-state``."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


class Content(NamedTuple):
    """What a sender handed over. The encoded parts are kept and delivered byte for byte.

    A named tuple, because one is made for every message that arrives and a frozen dataclass takes
    four times as long to make.

    :ivar header: the encoded first four fields of the AMQP header (durable, priority, ttl, first-acquirer).
    :ivar annotations: the encoded keys and values of the message annotations that are the sender's own.
    :ivar annotation_count: how many encoded values `annotations` holds, keys included.
    :ivar sections: the encoded sections from the properties to the footer.
    :ivar time_to_live: milliseconds, or None for as long as the entity allows.
    :ivar scheduled_for: milliseconds since 1970 before which the message is not delivered, or None.
    :ivar ping: whether the message only asks if the entity accepts messages, and is never delivered.
    """

    header: bytes
    annotations: bytes
    annotation_count: int
    sections: bytes
    time_to_live: int | None
    scheduled_for: int | None
    session_id: str | None
    ping: bool

    @property
    def size(self) -> int:
        """Bytes that count against the entity's quota."""
        return len(self.header) + len(self.annotations) + len(self.sections)


def total_size(contents: Iterable[Content]) -> int:
    """Return how many bytes several messages count against the entity's quota."""
    # By position, since it runs for each message that arrives, and names would double what it takes.
    return sum([len(header) + len(own) + len(sections) for header, own, _, sections, _, _, _, _ in contents])


class DeadLetterMark(NamedTuple):
    """Why a message is in the dead-letter queue."""

    reason: str | None
    description: str | None


class Journey(NamedTuple):
    """How a message came that was not sent to the entity but forwarded.

    :ivar hops: how often it was forwarded.
    :ivar dead_letter: why it died, if it did.
    :ivar died_in: the path of the entity in which it died.
    """

    hops: int
    dead_letter: DeadLetterMark | None
    died_in: str | None

    def mark(self, message: Message) -> None:
        """Let a message that arrives bear what it bore on its way."""
        message.hops, message.died_in = self.hops, self.died_in
        if message.dead_letter is None:
            message.dead_letter = self.dead_letter


class Lock(NamedTuple):
    """An exclusive, temporary hold on a message.

    :ivar token: 16 random bytes, the delivery tag.
    :ivar until: milliseconds since 1970.
    :ivar session_id: the session whose lock this one hangs on, or None.
    """

    token: bytes
    until: int
    session_id: str | None


@dataclass(slots=True, kw_only=True)
class Message:
    """One message of one queue. Only its queue changes it.

    :ivar row: the message's key in the journal, unique in the namespace and never used again.
    :ivar number: the sequence number; a scheduled message receives a new one when it becomes active.
    :ivar enqueued_at: when it was accepted or became active, in milliseconds since 1970, as `expires_at` and `due`.
    :ivar due: when a scheduled message becomes active.
    :ivar origin: the sequence number the message had in its topic; 0 for a message sent to a queue.
    :ivar delivery_count: deliveries that ended without success.
    :ivar dead_letter: why the message died; it is kept when a dead letter is forwarded.
    :ivar hops: how often the message was forwarded.
    :ivar died_in: the path of the entity in which the message died before it was forwarded.
    """

    row: int
    number: int
    content: Content
    enqueued_at: int
    expires_at: int | None = None
    due: int | None = None
    origin: int = 0
    state: MessageState = MessageState.ACTIVE
    delivery_count: int = 0
    lock: Lock | None = None
    dead_letter: DeadLetterMark | None = None
    hops: int = 0
    died_in: str | None = None

    def session(self) -> str:
        """Return the session id of a message in a queue that requires one."""
        session_id = self.content.session_id
        if session_id is None:
            # Admission refuses such messages, and a queue cannot begin to require sessions later.
            raise ValueError(f"message {self.number} has no session id, in a queue that requires sessions")
        return session_id
