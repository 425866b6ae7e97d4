"""The scheduled messages of one queue or topic."""

from __future__ import annotations

from collections.abc import Iterable

from servicebus_emulator.engine.model.errors import MessageNotFound
from servicebus_emulator.engine.model.message import Content, Message, MessageState
from servicebus_emulator.engine.model.timer_heap import TimerHeap
from servicebus_emulator.engine.queue.sequence_index import SequenceIndex
from servicebus_emulator.engine.runtime.context import Context, SequenceNumbers


class Schedule:
    """Scheduled messages by due time. They are stored in the entity's sequence index.

    The sequence number of a scheduled message is valid until the message becomes active. It is then appended to its
    queue under a new number, as if it had just been sent (Microsoft's "Message sequencing and timestamps").

    :ivar timers: when each message becomes active, by sequence number; to be read only.
    """

    __slots__ = ("_context", "_index", "_key", "_sequence", "timers")

    def __init__(self, key: int, *, index: SequenceIndex, context: Context, sequence: SequenceNumbers) -> None:
        self._key = key
        self._index = index
        self._context = context
        self._sequence = sequence
        self.timers: TimerHeap[int] = TimerHeap()

    def __len__(self) -> int:
        return len(self.timers)

    def next_due(self) -> int | None:
        """Return when the next message becomes active, or None."""
        return self.timers.next_due()

    def add(self, content: Content, *, due: int) -> int:
        """Store a message until `due` (milliseconds since 1970); return its sequence number."""
        message = Message(
            row_id=next(self._context.row_ids),
            sequence_number=self._sequence.next(),
            content=content,
            enqueued_at=self._context.clock.now(),
            due=due,
            state=MessageState.SCHEDULED,
        )
        self._index.add(message)
        self.timers.set(message.sequence_number, due)
        self._context.journal.add(self._key, message)
        return message.sequence_number

    def restore(self, message: Message) -> None:
        """Restore a message that is already in the index."""
        self.timers.set(message.sequence_number, message.enqueued_at if message.due is None else message.due)

    def cancel(self, numbers: Iterable[int]) -> None:
        """Remove messages, all or none.

        :raises MessageNotFound: when one of them is not scheduled.
        """
        messages = []
        for number in dict.fromkeys(numbers):
            message = self._index.get(number)
            if message is None or message.state is not MessageState.SCHEDULED:
                raise MessageNotFound(f"no scheduled message has sequence number {number}; it may be active already")
            messages.append(message)
        for message in messages:
            self.timers.discard(message.sequence_number)
            self._index.remove(message)
            self._context.journal.remove(message)

    def activate(self, now: int) -> list[Message]:
        """Make the due messages active under new sequence numbers and return them."""
        messages = []
        for number in self.timers.pop_due(now):
            message = self._index.pop(number)
            message.sequence_number = self._sequence.next()
            message.enqueued_at = now
            message.due = None
            message.state = MessageState.ACTIVE
            self._index.add(message)
            self._context.journal.update(self._key, message)
            messages.append(message)
        return messages
