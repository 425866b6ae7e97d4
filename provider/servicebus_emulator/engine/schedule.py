"""The messages of one entity that wait for their time."""

from __future__ import annotations

from collections.abc import Iterable

from servicebus_emulator.engine.agenda import Agenda
from servicebus_emulator.engine.context import Context, Sequence
from servicebus_emulator.engine.errors import MessageNotFound
from servicebus_emulator.engine.message import Content, Message, MessageState
from servicebus_emulator.engine.shelf import Shelf

__all__ = ["Schedule"]


class Schedule:
    """Scheduled messages, kept on their entity's shelf.

    A sequence number given here is valid until the message becomes active; then the message is
    appended to its queue as if it had just been sent, under a new number (Microsoft's "Message
    sequencing and time stamps").
    """

    __slots__ = ("_agenda", "_context", "_key", "_sequence", "_shelf")

    def __init__(self, key: int, *, shelf: Shelf, context: Context, sequence: Sequence) -> None:
        self._key = key
        self._shelf = shelf
        self._context = context
        self._sequence = sequence
        self._agenda: Agenda[int] = Agenda()

    def __len__(self) -> int:
        return len(self._agenda)

    def next_due(self) -> int | None:
        """Return when the next message becomes active."""
        return self._agenda.next_due()

    @property
    def horizon(self) -> float:
        """No message becomes active before this."""
        return self._agenda.horizon

    def add(self, content: Content, *, due: int) -> int:
        """Store a message until `due` (milliseconds since 1970); return its number."""
        message = Message(
            row=next(self._context.rows),
            number=self._sequence.next(),
            content=content,
            enqueued_at=self._context.clock.now(),
            due=due,
            state=MessageState.SCHEDULED,
        )
        self._shelf.add(message)
        self._agenda.set(message.number, due)
        self._context.journal.add(self._key, message)
        return message.number

    def restore(self, message: Message) -> None:
        """Take back a message that is on the shelf already."""
        self._agenda.set(message.number, message.enqueued_at if message.due is None else message.due)

    def cancel(self, numbers: Iterable[int]) -> None:
        """Remove messages, all or none.

        :raises MessageNotFound: when one of them is not scheduled.
        """
        messages = []
        for number in dict.fromkeys(numbers):
            message = self._shelf.get(number)
            if message is None or message.state is not MessageState.SCHEDULED:
                raise MessageNotFound(f"no scheduled message has sequence number {number}; it may be active already")
            messages.append(message)
        for message in messages:
            self._agenda.discard(message.number)
            self._shelf.remove(message)
            self._context.journal.remove(message)

    def activate(self, now: int) -> list[Message]:
        """Return the messages that are due, active under new numbers and on the shelf."""
        messages = []
        for number in self._agenda.pop_due(now):
            message = self._shelf.take(number)
            message.number = self._sequence.next()
            message.enqueued_at = now
            message.due = None
            message.state = MessageState.ACTIVE
            self._shelf.add(message)
            self._context.journal.change(self._key, message)
            messages.append(message)
        return messages
