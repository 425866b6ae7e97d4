"""A message as the broker stores it: the sender's content and the broker's state."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class MessageState(IntEnum):
    """The state of a message, with the values of ``x-opt-message-state``."""

    ACTIVE = 0
    DEFERRED = 1
    SCHEDULED = 2


class Content(NamedTuple):
    """What the sender sent. The encoded parts are stored and delivered byte for byte.

    A named tuple, because one is created for every incoming message and a frozen dataclass takes four times as long.

    :ivar header: the encoded first four fields of the AMQP header (durable, priority, ttl, first-acquirer).
    :ivar annotations: the encoded keys and values of the sender's message annotations.
    :ivar annotation_count: the number of encoded values in `annotations`, keys included.
    :ivar sections: the encoded sections from properties to footer.
    :ivar time_to_live: in milliseconds; None = the entity's default.
    :ivar scheduled_for: the scheduled enqueue time in milliseconds since 1970, or None.
    :ivar ping: whether the message only tests that the entity accepts messages and is never delivered.
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
        """The number of bytes that count against the entity's quota."""
        return len(self.header) + len(self.annotations) + len(self.sections)


def total_size(contents: Iterable[Content]) -> int:
    """Return the number of bytes that several messages count against the entity's quota."""
    # Unpacked by position: this runs for every incoming message, and attribute access would take twice as long.
    return sum([len(header) + len(own) + len(sections) for header, own, _, sections, _, _, _, _ in contents])


class DeadLetterInfo(NamedTuple):
    """The reason and error description of a dead-lettered message."""

    reason: str | None
    description: str | None


class ForwardingHistory(NamedTuple):
    """What a forwarded message carries from entity to entity.

    :ivar hops: the number of times the message was forwarded.
    :ivar dead_letter: why it was dead-lettered, if it was.
    :ivar dead_letter_source: the path of the entity in which it was dead-lettered.
    """

    hops: int
    dead_letter: DeadLetterInfo | None
    dead_letter_source: str | None

    def apply_to(self, message: Message) -> None:
        """Copy the history to a message that has just arrived."""
        message.hops, message.dead_letter_source = self.hops, self.dead_letter_source
        if message.dead_letter is None:
            message.dead_letter = self.dead_letter


class Lock(NamedTuple):
    """A peek-lock on a message.

    :ivar token: 16 random bytes, also used as delivery tag.
    :ivar locked_until: milliseconds since 1970.
    :ivar session_id: the session whose lock covers the message, or None.
    """

    token: bytes
    locked_until: int
    session_id: str | None


@dataclass(slots=True, kw_only=True)
class Message:
    """One message of one queue. Only its queue changes it. Times are in milliseconds since 1970.

    :ivar row_id: the message's key in the journal: unique in the namespace, never reused.
    :ivar sequence_number: a scheduled message gets a new one when it becomes active.
    :ivar enqueued_at: when the message was accepted or became active.
    :ivar due: when a scheduled message becomes active.
    :ivar enqueued_sequence_number: the sequence number that the topic assigned; 0 for a message sent to a queue.
    :ivar delivery_count: the number of unsuccessful deliveries.
    :ivar dead_letter: why the message was dead-lettered; kept when a dead letter is forwarded.
    :ivar hops: the number of times the message was forwarded.
    :ivar dead_letter_source: the path of the entity in which a forwarded message was dead-lettered.
    """

    row_id: int
    sequence_number: int
    content: Content
    enqueued_at: int
    expires_at: int | None = None
    due: int | None = None
    enqueued_sequence_number: int = 0
    state: MessageState = MessageState.ACTIVE
    delivery_count: int = 0
    lock: Lock | None = None
    dead_letter: DeadLetterInfo | None = None
    hops: int = 0
    dead_letter_source: str | None = None

    def session(self) -> str:
        """Return the session id of a message in a queue that requires sessions."""
        session_id = self.content.session_id
        if session_id is None:
            # Unreachable: such messages are refused on arrival, and `requires_session` cannot be changed later.
            raise ValueError(f"message {self.sequence_number} has no session id, although its queue requires sessions")
        return session_id
