"""A namespace: its entities as they are created, described and deleted, and all of them at work."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from itertools import count
from operator import attrgetter

from servicebus_emulator.engine.access import AccessRules
from servicebus_emulator.engine.admission import enlarged
from servicebus_emulator.engine.agenda import Agenda
from servicebus_emulator.engine.clock import Clock, SystemClock
from servicebus_emulator.engine.context import Context
from servicebus_emulator.engine.descriptions import (
    DescriptionError,
    MessageCounts,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
    check_update,
)
from servicebus_emulator.engine.directory import AnyEntity, Directory
from servicebus_emulator.engine.effects import Effects, Happened, Timed
from servicebus_emulator.engine.entities import SubQueue, TopicEntity
from servicebus_emulator.engine.errors import EntityExists, InvalidArgument
from servicebus_emulator.engine.forwarding import Forwarder
from servicebus_emulator.engine.idle import IdleWatch
from servicebus_emulator.engine.journal import Description, EntityRecord, Journal, MemoryJournal, Snapshot
from servicebus_emulator.engine.message import Content
from servicebus_emulator.engine.rules import PropertyCodec, UnreadableContents, check_rule
from servicebus_emulator.logs import event

__all__ = ["Namespace"]

_log = logging.getLogger(__name__)


class Namespace(Directory):
    """Entities by path, created, described, deleted and at work.

    Single-threaded and free of I/O, but for the journal. What changes a description is durable when
    the method returns; what moves messages is durable after the next :meth:`commit`, before which
    nobody may be told about it.

    :param name: the namespace's name: the first label of its host name.
    :param clock: tells the time.
    :param journal: keeps the state; by default it is kept in memory only.
    :param snapshot: what the journal remembers.
    :param identify: returns what tells one message from another where duplicates are detected: its
        message id, for who can read one.
    :param random_bytes: returns as many random bytes as asked for.
    :param codec: reads and changes the properties of messages; without one, rules can let pass all or none.
    :param deliver_pings: whether a ping is a message like any other; by default it is accepted and never
        delivered, as the documentation of paired namespaces says of the service.
    :param least_message_kilobytes: what each queue and topic takes at least, whatever its description asks for: 256
        are the service's Standard tier, 1024 its Premium tier ("Service Bus quotas", Microsoft Learn).
    """

    def __init__(
        self,
        name: str,
        *,
        clock: Clock | None = None,
        journal: Journal | None = None,
        snapshot: Snapshot | None = None,
        identify: Callable[[Content], bytes] = attrgetter("sections"),
        random_bytes: Callable[[int], bytes] = os.urandom,
        codec: PropertyCodec | None = None,
        deliver_pings: bool = False,
        least_message_kilobytes: int = 1,
    ) -> None:
        remembered = Snapshot() if snapshot is None else snapshot
        self._effects = Effects()
        context = Context(
            clock=SystemClock() if clock is None else clock,
            journal=MemoryJournal() if journal is None else journal,
            effects=self._effects,
            random_bytes=random_bytes,
            identify=identify,
            rows=count(remembered.last_row + 1),
            codec=UnreadableContents() if codec is None else codec,
            deliver_pings=deliver_pings,
        )
        super().__init__(name, context=context)
        self.least_message_kilobytes = least_message_kilobytes
        self._agenda: Agenda[Timed] = Agenda()
        self._keys = count(max((record.key for record in remembered.entities), default=0) + 1)
        self._forwarder = Forwarder(self.find, clock=self._context.clock)
        self.access_rules = AccessRules(self, context=self._context, remembered=remembered.access_rules)
        self.idle = IdleWatch(clock=self._context.clock, effects=self._effects, delete=self._delete_idle)
        for entity in self._restore(remembered):
            self._start(entity)

    # Entities, described

    def create(self, description: Description) -> Description:
        """Create what is described. Raises as the three methods that follow."""
        match description:
            case QueueDescription():
                return self.create_queue(description)
            case TopicDescription():
                return self.create_topic(description)
            case SubscriptionDescription():
                return self.create_subscription(description)

    def create_queue(self, description: QueueDescription) -> QueueDescription:
        """Create a queue.

        :raises EntityExists: when a queue or topic has the path.
        :raises InvalidArgument: when it forwards to what does not exist.
        """
        description = enlarged(description, kilobytes=self.least_message_kilobytes)
        self._check_free(description.path)
        self._forwarder.check(description, before=None)
        self._start(self._adopt(self._new_record(description)))
        return description

    def create_topic(self, description: TopicDescription) -> TopicDescription:
        """Create a topic.

        :raises EntityExists: when a queue or topic has the path.
        """
        description = enlarged(description, kilobytes=self.least_message_kilobytes)
        self._check_free(description.path)
        self._start(self._adopt(self._new_record(description)))
        return description

    def create_subscription(self, description: SubscriptionDescription) -> SubscriptionDescription:
        """Create a subscription.

        :raises EntityNotFound: when there is no such topic.
        :raises EntityExists: when the topic has a subscription of that name.
        :raises DescriptionError: when one of its rules cannot be evaluated.
        :raises InvalidArgument: when it forwards to what does not exist.
        """
        for rule in description.rules:
            check_rule(rule)
        if description.name.casefold() in self._topic(description.topic_path).subscriptions:
            raise EntityExists(
                f"topic {description.topic_path!r} has a subscription {description.name!r} already; choose another name"
            )
        self._forwarder.check(description, before=None)
        self._start(self._adopt(self._new_record(description)))
        return description

    def update_queue(self, description: QueueDescription) -> QueueDescription:
        """Describe a queue anew.

        :raises EntityNotFound: when there is no such queue.
        :raises InvalidArgument: when a field differs that is fixed at creation, or it is to forward to what
            does not exist.
        """
        description = enlarged(description, kilobytes=self.least_message_kilobytes)
        entity = self._queue(description.path)
        _check_change(entity.description, proposed=description)
        self._forwarder.check(description, before=entity.description)
        entity.describe(description)
        self._forwarder.connect(entity)
        self._note_update(entity)
        return description

    def update_topic(self, description: TopicDescription) -> TopicDescription:
        """Describe a topic anew.

        :raises EntityNotFound: when there is no such topic.
        :raises InvalidArgument: when a field differs that is fixed at creation.
        """
        description = enlarged(description, kilobytes=self.least_message_kilobytes)
        entity = self._topic(description.path)
        _check_change(entity.description, proposed=description)
        entity.describe(description)
        self._note_update(entity)
        return description

    def update_subscription(self, description: SubscriptionDescription) -> SubscriptionDescription:
        """Describe a subscription anew.

        :raises EntityNotFound: when there is no such topic or subscription.
        :raises InvalidArgument: when a field differs that is fixed at creation, or it is to forward to what
            does not exist.
        """
        entity = self._subscription(description.topic_path, description.name)
        _check_change(entity.description, proposed=description)
        self._forwarder.check(description, before=entity.description)
        entity.describe(description)
        self._forwarder.connect(entity)
        self._note_update(entity)
        return description

    def add_rule(self, topic: str, name: str, rule: RuleDescription) -> None:
        """Add a rule to a subscription.

        :raises EntityNotFound: when there is no such topic or subscription.
        :raises EntityExists: when the subscription has a rule of that name.
        :raises DescriptionError: when the rule cannot be evaluated.
        """
        self._subscription(topic, name).add_rule(rule)
        self._context.journal.commit()

    def update_rule(self, topic: str, name: str, rule: RuleDescription) -> None:
        """Replace the rule of a subscription that has the name of `rule`.

        :raises EntityNotFound: when there is no such topic, subscription or rule.
        :raises DescriptionError: when the rule cannot be evaluated.
        """
        self._subscription(topic, name).update_rule(rule)
        self._context.journal.commit()

    def remove_rule(self, topic: str, name: str, rule: str) -> None:
        """Remove a rule from a subscription.

        :raises EntityNotFound: when there is no such topic, subscription or rule.
        """
        self._subscription(topic, name).remove_rule(rule)
        self._context.journal.commit()

    def delete_queue(self, path: str) -> None:
        """Delete a queue with its messages.

        :raises EntityNotFound: when there is no such queue.
        """
        entity = self._queue(path)
        del self._queues[path.casefold()]
        self._drop(entity)

    def delete_topic(self, path: str) -> None:
        """Delete a topic with its subscriptions and their messages.

        :raises EntityNotFound: when there is no such topic.
        """
        entity = self._topic(path)
        del self._topics[path.casefold()]
        for subscription in entity.subscriptions.values():
            self._drop(subscription)
        self._drop(entity)

    def delete_subscription(self, topic: str, name: str) -> None:
        """Delete a subscription with its messages.

        :raises EntityNotFound: when there is no such topic or subscription.
        """
        entity = self._subscription(topic, name)
        del self._topic(topic).subscriptions[name.casefold()]
        self._drop(entity)

    def counts(self, path: str) -> MessageCounts:
        """Return how many messages an entity holds; a subscription's path is ``topic/Subscriptions/name``.

        :raises EntityNotFound: when nothing has the path.
        """
        self.advance()
        return self.find(path).counts()

    # Entities, at work

    def advance(self) -> None:
        """Let happen what has fallen due in any entity, and delete those whose idle time is over.

        :raises JournalError: when a deletion cannot be made durable.
        """
        self._refresh_agenda()
        for timed in self._agenda.pop_due(self._context.clock.now()):
            timed.advance()
            self._effects.changed(timed)

    def now(self) -> int:
        """Return what time it is in the namespace, in milliseconds since 1970."""
        return self._context.clock.now()

    def remind(self, timed: Timed) -> None:
        """Have something looked after that is no entity: it is advanced when it says that it is due."""
        self._effects.changed(timed)

    def next_due(self) -> int | None:
        """Return when :meth:`advance` next has something to do (milliseconds since 1970), or None."""
        self._refresh_agenda()
        return self._agenda.next_due()

    @property
    def is_durable(self) -> bool:
        """Whether :meth:`commit` does anything."""
        return self._context.journal.is_durable

    def commit(self) -> None:
        """Make durable what happened so far.

        :raises JournalError: when that failed; then the namespace must not be used any longer.
        """
        self._context.journal.commit()

    def on_effects(self, callback: Callable[[], None]) -> None:
        """Have `callback` called when something happens after :meth:`take_effects`."""
        self._effects.on_first = callback

    def take_effects(self) -> Happened:
        """Return what happened since the last call."""
        return self._effects.take()

    # Steps

    def _refresh_agenda(self) -> None:
        for timed in self._effects.take_retimed():
            due = timed.next_due()
            if due is None:
                self._agenda.discard(timed)
            else:
                self._agenda.set(timed, due)

    def _start(self, entity: AnyEntity) -> None:
        self.idle.watch(entity)
        if not isinstance(entity, TopicEntity):
            self._forwarder.connect(entity)

    def _delete_idle(self, entity: AnyEntity) -> None:
        description = entity.description
        match description:
            case QueueDescription():
                self.delete_queue(description.path)
            case TopicDescription():
                self.delete_topic(description.path)
            case SubscriptionDescription():
                self.delete_subscription(description.topic_path, description.name)
        about = event("deleted-idle", namespace=self.name, entity=description.path)
        idle = description.auto_delete_on_idle
        _log.info("namespace %s: deleted %s, idle for %s", self.name, description.path, idle, extra=about)

    def _new_record(self, description: Description) -> EntityRecord:
        now = self._context.clock.now()
        record = EntityRecord(
            key=next(self._keys), description=description, created=now, updated=now, accessed=now, last_number=0
        )
        self._context.journal.save_entity(record)
        self._context.journal.commit()
        return record

    def _note_update(self, entity: AnyEntity) -> None:
        entity.updated = self._context.clock.now()
        entity.touch()
        self.idle.watch(entity)
        self._context.journal.save_entity(entity.record(entity.description))
        self._context.journal.commit()
        self._effects.gone(entity.key)

    def _drop(self, entity: AnyEntity) -> None:
        entity.deleted = True
        self.idle.end(entity)
        if not isinstance(entity, TopicEntity):
            for queue in entity.parts():
                queue.connect(None)
        self._context.journal.drop_entity(entity.key, queues=[entity.queue_key(part) for part in SubQueue])
        self._context.journal.commit()
        self._effects.gone(entity.key)


def _check_change(current: Description, *, proposed: Description) -> None:
    try:
        check_update(current, proposed=proposed)
    except DescriptionError as error:
        raise InvalidArgument(str(error)) from error
