"""The messages that lie in one queue or sub-queue: what it holds, and how messages come, wait and go.

What waits can be taken: see :mod:`servicebus_emulator.engine.queue`. Where a queue is connected to another,
messages do not wait: they are passed on instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Several

from servicebus_emulator.engine.agenda import Agenda
from servicebus_emulator.engine.context import Context, Sequence
from servicebus_emulator.engine.errors import OperationNotAllowed
from servicebus_emulator.engine.lines import Line, SessionLines
from servicebus_emulator.engine.message import Content, DeadLetterMark, Journey, Message, MessageState, total_size
from servicebus_emulator.engine.schedule import Schedule
from servicebus_emulator.engine.sessions import SessionHold
from servicebus_emulator.engine.settings import QueueSettings, shortest
from servicebus_emulator.engine.shelf import Shelf
from servicebus_emulator.engine.tally import Tally

__all__ = ["Stock"]


class Stock(ABC):
    """The messages of one queue or sub-queue, those in a receiver's hands included.

    :ivar key: the queue's key in the journal.
    :ivar settings: may be replaced at any time, except `requires_session`.
    :ivar tally: what happened here.
    :param dead_letters: where dead messages go; None for a dead-letter queue, whose messages neither
        expire nor run out of deliveries.
    """

    def __init__(
        self,
        key: int,
        *,
        settings: QueueSettings,
        context: Context,
        sequence: Sequence,
        dead_letters: Stock | None,
    ) -> None:
        self.key = key
        self.settings = settings
        self._context = context
        self._dead_letters = dead_letters
        self._shelf = Shelf()
        self._schedule = Schedule(key, shelf=self._shelf, context=context, sequence=sequence)
        self._line = Line()
        self._session_lines = SessionLines() if settings.requires_session else None
        self._expiry: Agenda[int] = Agenda()
        self.tally = Tally()
        self._onward: Callable[[Message], bool] | None = None

    @abstractmethod
    def next_due(self) -> int | None:
        """Return when the queue next needs :meth:`advance` (milliseconds since 1970), or None."""

    @abstractmethod
    def advance(self) -> None:
        """Do all that has fallen due: activate, unlock, expire."""

    # What it holds

    @property
    def size_in_bytes(self) -> int:
        """Bytes of all messages."""
        return self._shelf.size_in_bytes

    @property
    def scheduled_count(self) -> int:
        """How many messages wait for their time."""
        return len(self._schedule)

    @property
    def active_count(self) -> int:
        """How many messages are waiting, locked or deferred."""
        return len(self._shelf) - len(self._schedule)

    @property
    def nothing_waits(self) -> bool:
        """Whether no message could be taken now, by anybody."""
        return len(self._line) == 0 if self._session_lines is None else self._session_lines.is_empty

    def waiting_count(self, *, hold: SessionHold | None = None) -> int:
        """Return how many messages could be taken now, of one session or of the queue."""
        if hold is not None and self._session_lines is not None:
            return self._session_lines.waiting(hold.session_id)
        return len(self._line)

    # How messages come in

    def add(
        self,
        content: Content,
        *,
        number: int,
        time_to_live: int | None,
        origin: int = 0,
        dead_letter: DeadLetterMark | None = None,
        journey: Journey | None = None,
    ) -> None:
        """Store a message that is ready to be received.

        :param time_to_live: the sender's, in milliseconds; the queue's own applies when shorter.
        :param dead_letter: why the message is stored in this dead-letter queue at once.
        :param journey: how it came, if it was forwarded.
        """
        message = Message(
            row=next(self._context.rows),
            number=number,
            content=content,
            enqueued_at=self._context.clock.now(),
            origin=origin,
            dead_letter=dead_letter,
        )
        if journey is not None:
            journey.mark(message)
        self._context.journal.add(self.key, message)
        self._start_life(message, time_to_live=time_to_live)
        self._shelf.add(message)
        self._wait(message)

    def add_all(self, contents: Several[Content], *, numbers: Several[int]) -> None:
        """Store messages as they were sent, all at once; their numbers ascend and are higher than all before."""
        now = self._context.clock.now()
        messages = [
            Message(row=row, number=number, content=content, enqueued_at=now)
            # strict=False: there is no end of rows.
            for number, content, row in zip(numbers, contents, self._context.rows, strict=False)
        ]
        self._context.journal.add_all(self.key, messages)
        self._start_lives(messages)
        self._shelf.extend(messages, numbers=numbers, size_in_bytes=total_size(contents))
        if self._session_lines is None:
            self._line.extend(numbers)
            self._pass_on()
        else:
            for message in messages:
                self._session_lines.push(message.number, session_id=message.session())
        self._context.effects.changed(self)

    def schedule(self, content: Content, *, due: int) -> int:
        """Store a message that becomes active at `due`; return its sequence number until then."""
        number = self._schedule.add(content, due=due)
        self._context.effects.changed(self)
        return number

    def restore(self, message: Message) -> None:
        """Take back a message after a restart; nobody holds it now."""
        self._shelf.add(message)
        self._context.effects.changed(self)
        if message.state is MessageState.SCHEDULED:
            self._schedule.restore(message)
            return
        if message.expires_at is not None:
            self._expiry.set(message.number, message.expires_at)
        if message.state is MessageState.ACTIVE:
            self._wait(message)

    def receive_dead(self, message: Message) -> None:
        """Take over a message that died in the queue this dead-letter queue belongs to."""
        message.state = MessageState.ACTIVE
        message.expires_at = None
        self._context.journal.change(self.key, message)
        self._shelf.add(message)
        self._wait(message)

    def connect(self, onward: Callable[[Message], bool] | None) -> None:
        """Have every message that waits, now or later, passed on instead of kept; None ends that.

        :param onward: takes over a message, and returns whether it left the entity. Not for a queue that
            requires sessions.
        """
        self._onward = onward
        self._pass_on()

    # Steps

    def _start_life(self, message: Message, *, time_to_live: int | None) -> None:
        lifetime = shortest(time_to_live, self.settings.time_to_live)
        if lifetime is not None:
            message.expires_at = message.enqueued_at + lifetime
            self._expiry.set(message.number, message.expires_at)

    def _start_lives(self, messages: Iterable[Message]) -> None:
        limit = self.settings.time_to_live
        ending: dict[int, list[int]] = {}
        for message in messages:
            lifetime = message.content.time_to_live
            if lifetime is None or (limit is not None and limit < lifetime):
                lifetime = limit
            if lifetime is not None:
                end = message.expires_at = message.enqueued_at + lifetime
                ending.setdefault(end, []).append(message.number)
        for end, numbers in ending.items():
            self._expiry.set_all(numbers, end)

    def _wait(self, message: Message) -> None:
        if self._session_lines is None:
            self._line.push(message.number)
            if self._onward is not None:
                self._pass_on()
        else:
            self._session_lines.push(message.number, session_id=message.session())
        self._context.effects.changed(self)

    def _pass_on(self) -> None:
        # A message may come back here while it is passed on; whoever is first takes the next from the line.
        while self._onward is not None and (number := self._line.pop()) is not None:
            message = self._shelf.take(number)
            self._expiry.discard(number)
            if self._onward(message):
                self._context.journal.remove(message)

    def _leave_line(self, message: Message) -> None:
        if message.state is not MessageState.ACTIVE:
            return
        if self._session_lines is None:
            self._line.discard(message.number)
        else:
            self._session_lines.discard(message.number, session_id=message.session())

    def _is_expired(self, message: Message) -> bool:
        return message.expires_at is not None and message.expires_at <= self._context.clock.now()

    def _expire(self, message: Message) -> None:
        self.tally.expired += 1
        if self.settings.dead_letter_on_expiry and self._dead_letters is not None:
            mark = DeadLetterMark("TTLExpiredException", "The message expired and was dead lettered.")
            self._bury(message, mark=mark, grave=self._dead_letters)
        else:
            self._remove(message)

    def _bury(self, message: Message, *, mark: DeadLetterMark, grave: Stock) -> None:
        self._shelf.remove(message)
        self._expiry.discard(message.number)
        message.dead_letter = mark
        self.tally.dead_lettered += 1
        grave.receive_dead(message)

    def _remove(self, message: Message) -> None:
        self._shelf.remove(message)
        self._expiry.discard(message.number)
        self._context.journal.remove(message)

    def _replace_content(self, message: Message, content: Content) -> None:
        self._shelf.replace_content(message, content)
        # The journal changes what happens to a message, never what was sent: it is another message there.
        self._context.journal.remove(message)
        message.row = next(self._context.rows)
        self._context.journal.add(self.key, message)

    def _lines_of_sessions(self) -> SessionLines:
        if self._session_lines is None:
            raise OperationNotAllowed("the entity does not require sessions; open a receiver without a session filter")
        return self._session_lines
