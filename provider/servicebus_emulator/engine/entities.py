"""Queues, subscriptions and topics: what stands behind a path."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from collections.abc import Sequence as Several
from dataclasses import replace
from enum import IntEnum
from uuid import UUID

from servicebus_emulator.engine.context import Context, Sequence
from servicebus_emulator.engine.descriptions import (
    MessageCounts,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.errors import EntityExists, EntityNotFound
from servicebus_emulator.engine.journal import Description, EntityRecord
from servicebus_emulator.engine.message import Content, DeadLetterMark, Journey, Message
from servicebus_emulator.engine.queue import MessageQueue
from servicebus_emulator.engine.reception import Reception, number_each
from servicebus_emulator.engine.rules import Examined, RuleSet, check_rule
from servicebus_emulator.engine.schedule import Schedule
from servicebus_emulator.engine.settings import QueueSettings, milliseconds, shortest
from servicebus_emulator.engine.shelf import Shelf
from servicebus_emulator.engine.sql.errors import SqlEvaluationError
from servicebus_emulator.engine.tally import Tally
from servicebus_emulator.logs import event

__all__ = ["Entity", "QueueEntity", "SubQueue", "SubscriptionEntity", "TopicEntity", "locate_queue"]


class SubQueue(IntEnum):
    """The parts of a queue or subscription; the value is the part's place in the journal key."""

    MAIN = 0
    DEAD_LETTER = 1
    TRANSFER_DEAD_LETTER = 2


_PARTS_PER_ENTITY = 4

_log = logging.getLogger(__name__)


def locate_queue(key: int) -> tuple[int, SubQueue]:
    """Return the entity's key and the part that a queue's key in the journal stands for."""
    entity, part = divmod(key, _PARTS_PER_ENTITY)
    return entity, SubQueue(part)


_NO_SESSION = DeadLetterMark(
    "Session ID is null", "Session enabled entity doesn't allow a message whose session identifier is null."
)
_FILTER_FAILED = "FilterEvaluationException"


class Entity:
    """What all entities have.

    :ivar key: the entity's key in the journal.
    :ivar deleted: whether the entity is gone; who still refers to it must let go.
    :ivar last_use: when it was last used as :mod:`servicebus_emulator.engine.idle` counts it, in
        milliseconds since 1970; not kept over a restart.
    """

    def __init__(self, record: EntityRecord, *, context: Context) -> None:
        self.key = record.key
        self.created = record.created
        self.updated = record.updated
        self.deleted = False
        self.sequence = Sequence(record.key, context=context, last=record.last_number, accessed=record.accessed)
        self._context = context
        self.last_use = context.clock.now()

    def touch(self) -> None:
        """Note that the entity is in use."""
        self.last_use = self._context.clock.now()

    def record(self, description: Description) -> EntityRecord:
        """Return the entity as the journal keeps it."""
        return EntityRecord(
            key=self.key,
            description=description,
            created=self.created,
            updated=self.updated,
            accessed=self.sequence.accessed,
            last_number=self.sequence.last,
        )

    def queue_key(self, part: SubQueue) -> int:
        """Return the key of one of the entity's queues in the journal."""
        return self.key * _PARTS_PER_ENTITY + part


class _Receivable(Entity):
    """A queue with its dead-letter queues."""

    def __init__(self, record: EntityRecord, *, settings: QueueSettings, context: Context) -> None:
        super().__init__(record, context=context)
        self._dead = {
            part: MessageQueue(
                self.queue_key(part),
                settings=_of_dead_letters(settings),
                context=context,
                sequence=self.sequence,
                dead_letters=None,
            )
            for part in (SubQueue.DEAD_LETTER, SubQueue.TRANSFER_DEAD_LETTER)
        }
        self.main = MessageQueue(
            self.queue_key(SubQueue.MAIN),
            settings=settings,
            context=context,
            sequence=self.sequence,
            dead_letters=self._dead[SubQueue.DEAD_LETTER],
        )

    def part(self, part: SubQueue) -> MessageQueue:
        """Return the queue itself or one of its sub-queues."""
        return self.main if part is SubQueue.MAIN else self._dead[part]

    def parts(self) -> tuple[MessageQueue, ...]:
        """Return the queue and its sub-queues."""
        return (self.main, *self._dead.values())

    @property
    def size_in_bytes(self) -> int:
        """Bytes of all messages."""
        return sum(queue.size_in_bytes for queue in self.parts())

    def tally(self) -> Tally:
        """Return what happened in the queue and its sub-queues."""
        together = Tally()
        for queue in self.parts():
            together.add(queue.tally)
        return together

    def counts(self) -> MessageCounts:
        """Return how many messages there are, by where they wait."""
        return MessageCounts(
            active=self.main.active_count,
            scheduled=self.main.scheduled_count,
            dead_lettered=self._dead[SubQueue.DEAD_LETTER].active_count,
            transfer_dead_lettered=self._dead[SubQueue.TRANSFER_DEAD_LETTER].active_count,
        )

    def _apply(self, settings: QueueSettings) -> None:
        self.main.settings = settings
        for queue in self._dead.values():
            queue.settings = _of_dead_letters(settings)


class QueueEntity(_Receivable):
    """A queue."""

    def __init__(self, record: EntityRecord, *, description: QueueDescription, context: Context) -> None:
        super().__init__(record, settings=QueueSettings.of(description), context=context)
        self.description = description
        self.reception = Reception(record.key, description=description, context=context)

    def describe(self, description: QueueDescription) -> None:
        """Take on a new description."""
        self.description = description
        self.reception.describe(description)
        self._apply(QueueSettings.of(description))

    def send(self, contents: Several[Content]) -> None:
        """Take in messages, all or none. Pings are checked and not stored, duplicates accepted and dropped.

        :raises EntityDisabled, OperationNotAllowed, QuotaExceeded: see :func:`admit`.
        """
        taken_in = self.reception.take_in(contents, size_in_bytes=self.size_in_bytes)
        now = self._context.clock.now()
        ready = [each for each in taken_in if each.scheduled_for is None or each.scheduled_for <= now]
        self.main.add_all(ready, numbers=self.sequence.take(len(ready)))
        if len(ready) == len(taken_in):
            return
        for content in taken_in:
            if content.scheduled_for is not None and content.scheduled_for > now:
                self.main.schedule(content, due=content.scheduled_for)

    def take_over(self, content: Content, *, journey: Journey) -> None:
        """Take in a message that another entity forwards.

        :raises EntityDisabled, OperationNotAllowed, QuotaExceeded: see :func:`admit`.
        """
        for taken in self.reception.take_in([content], size_in_bytes=self.size_in_bytes):
            self.main.add(taken, number=self.sequence.next(), time_to_live=taken.time_to_live, journey=journey)

    def schedule(self, contents: Several[Content]) -> list[int]:
        """Take in messages for later, all or none; return the numbers by which they can be cancelled (0: a duplicate).

        :raises EntityDisabled, OperationNotAllowed, QuotaExceeded: see :func:`admit`.
        """
        taken_in = self.reception.take_in(contents, size_in_bytes=self.size_in_bytes)
        now = self._context.clock.now()
        return number_each(
            contents,
            taken_in=taken_in,
            schedule=lambda content: self.main.schedule(content, due=_due(content, now=now)),
        )

    def cancel(self, numbers: Iterable[int]) -> None:
        """Remove scheduled messages, all or none.

        :raises MessageNotFound: when one of them is not scheduled (any more).
        """
        self.main.cancel(numbers)


class SubscriptionEntity(_Receivable):
    """A subscription of a topic."""

    def __init__(self, record: EntityRecord, *, description: SubscriptionDescription, context: Context) -> None:
        super().__init__(record, settings=QueueSettings.of(description), context=context)
        self.description = description
        self._rules = self._rule_set()

    def describe(self, description: SubscriptionDescription) -> None:
        """Take on a new description."""
        self.description = description
        self._rules = self._rule_set()
        self._apply(QueueSettings.of(description))

    def add_rule(self, rule: RuleDescription) -> None:
        """Add a rule; it is durable after the next commit, as are the other changes of rules.

        :raises EntityExists: when there is a rule of that name.
        :raises DescriptionError: when the rule cannot be evaluated.
        """
        if self._find_rule(rule.name) is not None:
            raise EntityExists(f"{self.description.path!r} has a rule {rule.name!r} already; choose another name")
        check_rule(rule)
        self._set_rules((*self.description.rules, rule))

    def update_rule(self, rule: RuleDescription) -> None:
        """Replace the rule of the same name, which keeps its place.

        :raises EntityNotFound: when there is no rule of that name.
        :raises DescriptionError: when the rule cannot be evaluated.
        """
        current = self.get_rule(rule.name)
        check_rule(rule)
        renamed = replace(rule, name=current.name)
        self._set_rules(tuple(renamed if each is current else each for each in self.description.rules))

    def remove_rule(self, name: str) -> None:
        """Remove a rule; without any, the subscription receives nothing.

        :raises EntityNotFound: when there is no rule of that name.
        """
        doomed = self.get_rule(name)
        self._set_rules(tuple(each for each in self.description.rules if each is not doomed))

    def get_rule(self, name: str) -> RuleDescription:
        """Return a rule.

        :raises EntityNotFound: when there is no rule of that name.
        """
        rule = self._find_rule(name)
        if rule is None:
            raise EntityNotFound(f"subscription {self.description.path!r} has no rule {name!r}")
        return rule

    def receive(
        self, message: Examined, *, origin: int, time_to_live: int | None, journey: Journey | None = None
    ) -> None:
        """Store what the rules make of a message that the topic passes on, unless the status forbids it."""
        if not self.description.status.accepts_sends:
            return
        try:
            contents = self._rules.select(message)
        except SqlEvaluationError as error:
            self._reject(message.content, error=error, origin=origin, journey=journey)
            return
        for content in contents:
            self._deliver(content, origin=origin, time_to_live=time_to_live, journey=journey)

    def _deliver(self, content: Content, *, origin: int, time_to_live: int | None, journey: Journey | None) -> None:
        number = self.sequence.next()
        if self.description.requires_session and content.session_id is None:
            self.main.tally.dead_lettered += 1
            self.part(SubQueue.DEAD_LETTER).add(
                content, number=number, time_to_live=None, origin=origin, dead_letter=_NO_SESSION, journey=journey
            )
        else:
            self.main.add(content, number=number, time_to_live=time_to_live, origin=origin, journey=journey)

    def _reject(self, content: Content, *, error: SqlEvaluationError, origin: int, journey: Journey | None) -> None:
        if not self.description.dead_lettering_on_filter_evaluation_exceptions:
            about = event("message-passed-over", entity=self.description.path)
            _log.warning("subscription %s: passed over a message: %s", self.description.path, error, extra=about)
            return
        self.main.tally.dead_lettered += 1
        self.part(SubQueue.DEAD_LETTER).add(
            content,
            number=self.sequence.next(),
            time_to_live=None,
            origin=origin,
            dead_letter=DeadLetterMark(_FILTER_FAILED, str(error)),
            journey=journey,
        )

    def _find_rule(self, name: str) -> RuleDescription | None:
        wanted = name.casefold()
        return next((rule for rule in self.description.rules if rule.name.casefold() == wanted), None)

    def _set_rules(self, rules: tuple[RuleDescription, ...]) -> None:
        self.description = replace(self.description, rules=rules)
        self._rules = self._rule_set()
        self.updated = self._context.clock.now()
        self.touch()
        self._context.journal.save_entity(self.record(self.description))

    def _rule_set(self) -> RuleSet:
        return RuleSet(self.description.rules, new_uuid=lambda: UUID(bytes=self._context.random_bytes(16), version=4))


class TopicEntity(Entity):
    """A topic: passes each message on to all of its subscriptions.

    :ivar subscriptions: by case-folded name.
    """

    def __init__(self, record: EntityRecord, *, description: TopicDescription, context: Context) -> None:
        super().__init__(record, context=context)
        self.description = description
        self.reception = Reception(record.key, description=description, context=context)
        self.subscriptions: dict[str, SubscriptionEntity] = {}
        self._shelf = Shelf()
        self._schedule = Schedule(
            self.queue_key(SubQueue.MAIN), shelf=self._shelf, context=context, sequence=self.sequence
        )

    def describe(self, description: TopicDescription) -> None:
        """Take on a new description."""
        self.description = description
        self.reception.describe(description)

    @property
    def size_in_bytes(self) -> int:
        """Bytes of all messages, those of the subscriptions included."""
        return self._shelf.size_in_bytes + sum(each.size_in_bytes for each in self.subscriptions.values())

    def counts(self) -> MessageCounts:
        """Return how many messages there are; a topic itself holds scheduled ones only."""
        return MessageCounts(scheduled=len(self._schedule))

    def send(self, contents: Several[Content]) -> None:
        """Take in messages, all or none. Pings are checked and not stored, duplicates accepted and dropped.

        :raises EntityDisabled, QuotaExceeded: see :func:`admit`.
        """
        taken_in = self.reception.take_in(contents, size_in_bytes=self.size_in_bytes)
        now = self._context.clock.now()
        self.sequence.touch()
        for content in taken_in:
            if content.scheduled_for is not None and content.scheduled_for > now:
                self._keep(content, due=content.scheduled_for)
            else:
                self._pass_on(content, origin=self.sequence.next())

    def take_over(self, content: Content, *, journey: Journey) -> None:
        """Take in a message that another entity forwards.

        :raises EntityDisabled, QuotaExceeded: see :func:`admit`.
        """
        for taken in self.reception.take_in([content], size_in_bytes=self.size_in_bytes):
            self._pass_on(taken, origin=self.sequence.next(), journey=journey)

    def schedule(self, contents: Several[Content]) -> list[int]:
        """Take in messages for later, all or none; return the numbers by which they can be cancelled (0: a duplicate).

        :raises EntityDisabled, QuotaExceeded: see :func:`admit`.
        """
        taken_in = self.reception.take_in(contents, size_in_bytes=self.size_in_bytes)
        now = self._context.clock.now()
        return number_each(
            contents, taken_in=taken_in, schedule=lambda content: self._keep(content, due=_due(content, now=now))
        )

    def cancel(self, numbers: Iterable[int]) -> None:
        """Remove scheduled messages, all or none.

        :raises MessageNotFound: when one of them is not scheduled (any more).
        """
        self.advance()
        self._schedule.cancel(numbers)
        self._context.effects.changed(self)

    def next_due(self) -> int | None:
        """Return when the next scheduled message is to be passed on; a deleted topic passes on nothing."""
        return None if self.deleted else self._schedule.next_due()

    def advance(self) -> None:
        """Pass on the messages whose time has come."""
        if self.deleted:
            return
        for message in self._schedule.activate(self._context.clock.now()):
            self._shelf.remove(message)
            self._context.journal.remove(message)
            self._pass_on(message.content, origin=message.number)

    def restore(self, message: Message) -> None:
        """Take back a scheduled message after a restart."""
        self._shelf.add(message)
        self._schedule.restore(message)
        self._context.effects.changed(self)

    def _keep(self, content: Content, *, due: int) -> int:
        self._context.effects.changed(self)
        return self._schedule.add(content, due=due)

    def _pass_on(self, content: Content, *, origin: int, journey: Journey | None = None) -> None:
        time_to_live = shortest(content.time_to_live, milliseconds(self.description.default_message_time_to_live))
        message = Examined(content, codec=self._context.codec)
        for subscription in self.subscriptions.values():
            subscription.receive(message, origin=origin, time_to_live=time_to_live, journey=journey)


def _of_dead_letters(settings: QueueSettings) -> QueueSettings:
    return replace(settings, time_to_live=None, dead_letter_on_expiry=False, requires_session=False)


def _due(content: Content, *, now: int) -> int:
    return now if content.scheduled_for is None else content.scheduled_for
