"""The messages stored in one queue or subqueue: how they arrive, become ready, expire and leave.

:mod:`servicebus_emulator.engine.queue.queue` adds receiving and settlement. If the entity forwards its messages, they
do not become ready but are passed to the forwarder.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence

from servicebus_emulator.engine.model.errors import OperationNotAllowed
from servicebus_emulator.engine.model.message import (
    Content,
    DeadLetterInfo,
    ForwardingHistory,
    Message,
    MessageState,
    total_size,
)
from servicebus_emulator.engine.model.queue_settings import QueueSettings, min_or_none
from servicebus_emulator.engine.model.session_locks import SessionLock
from servicebus_emulator.engine.model.timer_heap import TimerHeap
from servicebus_emulator.engine.queue.counters import Counters
from servicebus_emulator.engine.queue.ready_queue import ReadyQueue, SessionReadyQueues
from servicebus_emulator.engine.queue.schedule import Schedule
from servicebus_emulator.engine.queue.sequence_index import SequenceIndex
from servicebus_emulator.engine.runtime.context import Context, SequenceNumbers


class MessageStore(ABC):
    """The messages of one queue or subqueue, including locked ones.

    :param dead_letters: the dead-letter queue. None for a dead-letter queue itself, whose messages neither expire nor
        exceed a delivery count.
    :ivar key: the queue's key in the journal.
    :ivar settings: may be replaced at any time, except `requires_session`.
    """

    def __init__(
        self,
        key: int,
        *,
        settings: QueueSettings,
        context: Context,
        sequence: SequenceNumbers,
        dead_letters: MessageStore | None,
    ) -> None:
        self.key = key
        self.settings = settings
        self._context = context
        self._dead_letters = dead_letters
        self._index = SequenceIndex()
        self._schedule = Schedule(key, index=self._index, context=context, sequence=sequence)
        self._ready = ReadyQueue()
        self._session_ready = SessionReadyQueues() if settings.requires_session else None
        self._expiry: TimerHeap[int] = TimerHeap()
        self.counters = Counters()
        self._forward: Callable[[Message], bool] | None = None

    @abstractmethod
    def next_due(self) -> int | None:
        """Return when :meth:`advance` next has work to do (milliseconds since 1970), or None."""

    @abstractmethod
    def advance(self) -> None:
        """Activate scheduled messages, expire locks and expire messages that are due."""

    # State

    @property
    def size_in_bytes(self) -> int:
        """The total size of all messages."""
        return self._index.size_in_bytes

    @property
    def scheduled_count(self) -> int:
        """The number of scheduled messages."""
        return len(self._schedule)

    @property
    def active_count(self) -> int:
        """The number of ready, locked and deferred messages."""
        return len(self._index) - len(self._schedule)

    @property
    def nothing_ready(self) -> bool:
        """Whether no message is ready to be received."""
        return len(self._ready) == 0 if self._session_ready is None else self._session_ready.is_empty

    def ready_count(self, session_lock: SessionLock | None = None) -> int:
        """Return the number of messages ready to be received, in the queue or in one session."""
        if session_lock is not None and self._session_ready is not None:
            return self._session_ready.ready_count(session_lock.session_id)
        return len(self._ready)

    # Arrival

    def add(
        self,
        content: Content,
        *,
        number: int,
        time_to_live: int | None,
        enqueued_sequence_number: int = 0,
        dead_letter: DeadLetterInfo | None = None,
        forwarding: ForwardingHistory | None = None,
    ) -> None:
        """Store a message that is ready to be received.

        :param number: its sequence number.
        :param time_to_live: the sender's, in milliseconds; limited by that of the queue.
        :param dead_letter: why the message is stored directly in this dead-letter queue.
        :param forwarding: its forwarding history, if it was forwarded.
        """
        message = Message(
            row_id=next(self._context.row_ids),
            sequence_number=number,
            content=content,
            enqueued_at=self._context.clock.now(),
            enqueued_sequence_number=enqueued_sequence_number,
            dead_letter=dead_letter,
        )
        if forwarding is not None:
            forwarding.apply_to(message)
        self._context.journal.add(self.key, message)
        self._set_expiry(message, time_to_live=time_to_live)
        self._index.add(message)
        self._make_ready(message)

    def add_all(self, contents: Sequence[Content], *, numbers: Sequence[int]) -> None:
        """Store newly sent messages whose sequence numbers ascend and are higher than all before."""
        now = self._context.clock.now()
        messages = [
            Message(row_id=row_id, sequence_number=number, content=content, enqueued_at=now)
            # strict=False: row_ids is infinite.
            for number, content, row_id in zip(numbers, contents, self._context.row_ids, strict=False)
        ]
        self._context.journal.add_all(self.key, messages)
        self._set_expiries(messages)
        self._index.extend(messages, numbers=numbers, size_in_bytes=total_size(contents))
        if self._session_ready is None:
            self._ready.extend(numbers)
            self._forward_ready()
        else:
            for message in messages:
                self._session_ready.push(message.sequence_number, session_id=message.session())
        self._context.effects.changed(self)

    def schedule(self, content: Content, *, due: int) -> int:
        """Store a message that becomes active at `due`; return its sequence number until then."""
        number = self._schedule.add(content, due=due)
        self._context.effects.changed(self)
        return number

    def restore(self, message: Message) -> None:
        """Restore an unlocked message after a restart."""
        self._index.add(message)
        self._context.effects.changed(self)
        if message.state is MessageState.SCHEDULED:
            self._schedule.restore(message)
            return
        if message.expires_at is not None:
            self._expiry.set(message.sequence_number, message.expires_at)
        if message.state is MessageState.ACTIVE:
            self._make_ready(message)

    def add_dead_letter(self, message: Message) -> None:
        """Take over a dead-lettered message of the entity that this dead-letter queue belongs to."""
        message.state = MessageState.ACTIVE
        message.expires_at = None
        self._context.journal.update(self.key, message)
        self._index.add(message)
        self._make_ready(message)

    def set_forwarder(self, forward: Callable[[Message], bool] | None) -> None:
        """Pass all ready messages, current and future, to `forward` instead of keeping them; None ends that.

        :param forward: takes over a message and returns whether it left the entity. Not allowed for queues that
            require sessions.
        """
        self._forward = forward
        self._forward_ready()

    # Internals

    def _set_expiry(self, message: Message, *, time_to_live: int | None) -> None:
        lifetime = min_or_none(time_to_live, self.settings.time_to_live)
        if lifetime is not None:
            message.expires_at = message.enqueued_at + lifetime
            self._expiry.set(message.sequence_number, message.expires_at)

    def _set_expiries(self, messages: Iterable[Message]) -> None:
        limit = self.settings.time_to_live
        numbers_by_expiry: dict[int, list[int]] = {}
        for message in messages:
            lifetime = message.content.time_to_live
            if lifetime is None or (limit is not None and limit < lifetime):
                lifetime = limit
            if lifetime is not None:
                expires_at = message.expires_at = message.enqueued_at + lifetime
                numbers_by_expiry.setdefault(expires_at, []).append(message.sequence_number)
        for expires_at, numbers in numbers_by_expiry.items():
            self._expiry.set_all(numbers, expires_at)

    def _make_ready(self, message: Message) -> None:
        if self._session_ready is None:
            self._ready.push(message.sequence_number)
            if self._forward is not None:
                self._forward_ready()
        else:
            self._session_ready.push(message.sequence_number, session_id=message.session())
        self._context.effects.changed(self)

    def _forward_ready(self) -> None:
        # Re-entrant: a forwarded message may come back to this queue before `forward` returns.
        while self._forward is not None and (number := self._ready.pop()) is not None:
            message = self._index.pop(number)
            self._expiry.discard(number)
            if self._forward(message):
                self._context.journal.remove(message)

    def _remove_from_ready(self, message: Message) -> None:
        if message.state is not MessageState.ACTIVE:
            return
        if self._session_ready is None:
            self._ready.discard(message.sequence_number)
        else:
            self._session_ready.discard(message.sequence_number, session_id=message.session())

    def _is_expired(self, message: Message) -> bool:
        return message.expires_at is not None and message.expires_at <= self._context.clock.now()

    def _expire(self, message: Message) -> None:
        self.counters.expired += 1
        if self.settings.dead_letter_on_expiry and self._dead_letters is not None:
            info = DeadLetterInfo("TTLExpiredException", "The message expired and was dead lettered.")
            self._move_to_dead_letters(message, info=info, destination=self._dead_letters)
        else:
            self._remove(message)

    def _move_to_dead_letters(self, message: Message, *, info: DeadLetterInfo, destination: MessageStore) -> None:
        self._index.remove(message)
        self._expiry.discard(message.sequence_number)
        message.dead_letter = info
        self.counters.dead_lettered += 1
        destination.add_dead_letter(message)

    def _remove(self, message: Message) -> None:
        self._index.remove(message)
        self._expiry.discard(message.sequence_number)
        self._context.journal.remove(message)

    def _remove_all(self, messages: Sequence[Message]) -> None:
        self._index.remove_all(messages)
        self._expiry.discard_all(message.sequence_number for message in messages)
        self._context.journal.remove_all(messages)

    def _replace_content(self, message: Message, content: Content) -> None:
        self._index.replace_content(message, content)
        # The journal never updates the content of a row, so the message gets a new one.
        self._context.journal.remove(message)
        message.row_id = next(self._context.row_ids)
        self._context.journal.add(self.key, message)

    def _require_sessions(self) -> SessionReadyQueues:
        if self._session_ready is None:
            raise OperationNotAllowed("the entity does not require sessions; open a receiver without a session filter")
        return self._session_ready
