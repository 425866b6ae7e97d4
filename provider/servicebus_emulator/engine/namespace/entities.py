"""Entities with messages to receive: the common base classes, and queues."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import IntEnum

from servicebus_emulator.engine.model.descriptions import Description, MessageCounts, QueueDescription
from servicebus_emulator.engine.model.message import Content, ForwardingHistory
from servicebus_emulator.engine.model.queue_settings import QueueSettings
from servicebus_emulator.engine.queue.counters import Counters
from servicebus_emulator.engine.queue.ingress import Ingress
from servicebus_emulator.engine.queue.queue import MessageQueue
from servicebus_emulator.engine.runtime.context import Context, SequenceNumbers
from servicebus_emulator.engine.runtime.journal import EntityRecord


class SubQueue(IntEnum):
    """The queues of an entity. The value is part of the queue's key in the journal."""

    MAIN = 0
    DEAD_LETTER = 1
    TRANSFER_DEAD_LETTER = 2


_QUEUES_PER_ENTITY = 4


def split_queue_key(key: int) -> tuple[int, SubQueue]:
    """Return the entity key and the subqueue of a queue's key in the journal."""
    entity, sub_queue = divmod(key, _QUEUES_PER_ENTITY)
    return entity, SubQueue(sub_queue)


class Entity:
    """The base class of all entities.

    :ivar key: the entity's key in the journal.
    :ivar deleted: whether the entity has been deleted; references to it must be dropped.
    :ivar last_used: the last use as :mod:`servicebus_emulator.engine.namespace.auto_delete` defines it, in
        milliseconds since 1970; not persisted.
    """

    def __init__(self, record: EntityRecord, *, context: Context) -> None:
        self.key = record.key
        self.created = record.created
        self.updated = record.updated
        self.deleted = False
        self.sequence = SequenceNumbers(record.key, context=context, last=record.last_number, accessed=record.accessed)
        self._context = context
        self.last_used = context.clock.now()

    def touch(self) -> None:
        """Record a use of the entity."""
        self.last_used = self._context.clock.now()

    def record(self, description: Description) -> EntityRecord:
        """Return the entity's journal record."""
        return EntityRecord(
            key=self.key,
            description=description,
            created=self.created,
            updated=self.updated,
            accessed=self.sequence.accessed,
            last_number=self.sequence.last,
        )

    def queue_key(self, sub_queue: SubQueue) -> int:
        """Return the journal key of one of the entity's queues."""
        return self.key * _QUEUES_PER_ENTITY + sub_queue


class ReceivableEntity(Entity):
    """An entity with a main queue, a dead-letter queue and a transfer dead-letter queue."""

    def __init__(self, record: EntityRecord, *, settings: QueueSettings, context: Context) -> None:
        super().__init__(record, context=context)
        self._dead_letter_queues = {
            sub_queue: MessageQueue(
                self.queue_key(sub_queue),
                settings=_dead_letter_settings(settings),
                context=context,
                sequence=self.sequence,
                dead_letters=None,
            )
            for sub_queue in (SubQueue.DEAD_LETTER, SubQueue.TRANSFER_DEAD_LETTER)
        }
        self.main = MessageQueue(
            self.queue_key(SubQueue.MAIN),
            settings=settings,
            context=context,
            sequence=self.sequence,
            dead_letters=self._dead_letter_queues[SubQueue.DEAD_LETTER],
        )

    def sub_queue(self, sub_queue: SubQueue) -> MessageQueue:
        """Return the main queue or one of the dead-letter queues."""
        return self.main if sub_queue is SubQueue.MAIN else self._dead_letter_queues[sub_queue]

    def queues(self) -> tuple[MessageQueue, ...]:
        """Return all queues of the entity."""
        return (self.main, *self._dead_letter_queues.values())

    @property
    def size_in_bytes(self) -> int:
        """The total size of all messages."""
        return sum(queue.size_in_bytes for queue in self.queues())

    def counters(self) -> Counters:
        """Return the sum of the counters of all queues."""
        total = Counters()
        for queue in self.queues():
            total.add(queue.counters)
        return total

    def counts(self) -> MessageCounts:
        """Return the number of messages by state."""
        return MessageCounts(
            active=self.main.active_count,
            scheduled=self.main.scheduled_count,
            dead_lettered=self._dead_letter_queues[SubQueue.DEAD_LETTER].active_count,
            transfer_dead_lettered=self._dead_letter_queues[SubQueue.TRANSFER_DEAD_LETTER].active_count,
        )

    def _apply(self, settings: QueueSettings) -> None:
        self.main.settings = settings
        for queue in self._dead_letter_queues.values():
            queue.settings = _dead_letter_settings(settings)


class QueueEntity(ReceivableEntity):
    """A queue."""

    def __init__(self, record: EntityRecord, *, description: QueueDescription, context: Context) -> None:
        super().__init__(record, settings=QueueSettings.of(description), context=context)
        self.description = description
        self.ingress = Ingress(record.key, description=description, context=context)

    def update(self, description: QueueDescription) -> None:
        """Apply a new description."""
        self.description = description
        self.ingress.update(description)
        self._apply(QueueSettings.of(description))

    def check(self, contents: Sequence[Content]) -> None:
        """Check that messages would be accepted.

        :raises EntityDisabled, OperationNotAllowed, QuotaExceeded: see :func:`check_send`.
        """
        self.ingress.check(contents, size_in_bytes=self.size_in_bytes)

    def send(self, contents: Sequence[Content], *, checked: bool = False) -> None:
        """Accept messages, all or none. Pings and duplicates are accepted but not stored.

        :param checked: whether :meth:`check` has accepted them.
        :raises EntityDisabled, OperationNotAllowed, QuotaExceeded: see :func:`check_send`.
        """
        accepted = self.ingress.accept(contents, size_in_bytes=None if checked else self.size_in_bytes)
        now = self._context.clock.now()
        ready = [each for each in accepted if each.scheduled_for is None or each.scheduled_for <= now]
        self.main.add_all(ready, numbers=self.sequence.take(len(ready)))
        if len(ready) == len(accepted):
            return
        for content in accepted:
            if content.scheduled_for is not None and content.scheduled_for > now:
                self.main.schedule(content, due=content.scheduled_for)

    def accept_forwarded(self, content: Content, *, forwarding: ForwardingHistory) -> None:
        """Accept a message that another entity forwards.

        :raises EntityDisabled, OperationNotAllowed, QuotaExceeded: see :func:`check_send`.
        """
        for accepted in self.ingress.accept([content], size_in_bytes=self.size_in_bytes):
            self.main.add(
                accepted, number=self.sequence.next(), time_to_live=accepted.time_to_live, forwarding=forwarding
            )

    def schedule(self, contents: Sequence[Content]) -> list[int]:
        """Accept messages for a later time, all or none.

        :return: the sequence numbers by which they can be cancelled; 0 for duplicates.
        :raises EntityDisabled, OperationNotAllowed, QuotaExceeded: see :func:`check_send`.
        """
        return self.ingress.schedule(
            contents, size_in_bytes=self.size_in_bytes, add=lambda content, due: self.main.schedule(content, due=due)
        )

    def cancel(self, numbers: Iterable[int]) -> None:
        """Cancel scheduled messages, all or none.

        :raises MessageNotFound: when one of them is not scheduled (any more).
        """
        self.main.cancel(numbers)


def _dead_letter_settings(settings: QueueSettings) -> QueueSettings:
    return replace(settings, time_to_live=None, dead_letter_on_expiry=False, requires_session=False)
