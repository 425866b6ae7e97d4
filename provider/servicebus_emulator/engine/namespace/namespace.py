"""A namespace: creates, updates and deletes entities, and runs their timers."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from itertools import count
from operator import attrgetter

from servicebus_emulator.engine.model.clock import Clock, SystemClock
from servicebus_emulator.engine.model.descriptions import (
    Description,
    MessageCounts,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    check_update,
)
from servicebus_emulator.engine.model.entity_names import DescriptionError
from servicebus_emulator.engine.model.errors import InvalidArgument
from servicebus_emulator.engine.model.message import Content
from servicebus_emulator.engine.model.rule_descriptions import RuleDescription
from servicebus_emulator.engine.model.timer_heap import TimerHeap
from servicebus_emulator.engine.namespace.auto_delete import AutoDelete
from servicebus_emulator.engine.namespace.entities import QueueEntity, SubQueue
from servicebus_emulator.engine.namespace.entity_registry import AnyEntity, EntityRegistry
from servicebus_emulator.engine.namespace.forwarding import Forwarder
from servicebus_emulator.engine.namespace.shared_access_policies import SharedAccessPolicies
from servicebus_emulator.engine.namespace.throttle import Throttle
from servicebus_emulator.engine.namespace.tiers import Tier, adjusted, check_tier
from servicebus_emulator.engine.namespace.topics import SubscriptionEntity, TopicEntity
from servicebus_emulator.engine.queue.limits import with_min_message_size
from servicebus_emulator.engine.runtime.context import Context
from servicebus_emulator.engine.runtime.journal import EntityRecord, Journal, Snapshot
from servicebus_emulator.engine.runtime.pending_effects import EffectBatch, PendingEffects, TimerDriven
from servicebus_emulator.engine.runtime.rule_set import NoPropertyCodec, PropertyCodec, check_rule
from servicebus_emulator.logs import event

_log = logging.getLogger(__name__)


class Namespace(EntityRegistry):
    """A Service Bus namespace, single-threaded and without I/O except through the journal.

    Changes of descriptions are durable when the method returns. Changes of messages are durable after the next
    :meth:`commit`; they must not be confirmed to clients before.

    :param name: the namespace's name: the first label of its host name.
    :param clock: the system clock by default.
    :param journal: persists the state; by default it is kept in memory only.
    :param snapshot: the state to restore, from the journal.
    :param identify: returns the identity of a message for duplicate detection, normally its message id.
    :param random_bytes: returns the given number of random bytes.
    :param codec: reads and rewrites message properties; without one, rules can only match all messages or none.
    :param deliver_pings: whether pings are delivered like other messages; by default they are accepted and discarded,
        as the documentation of paired namespaces describes.
    :param min_message_kilobytes: raises a lower maximum message size of queues and topics to this value: 256 is the
        limit of the Standard tier, 1024 of the Premium tier ("Service Bus quotas", Microsoft Learn).
    :ivar tier: what it accepts is limited to that of a tier; None = everything.
    :param throttle: whether it takes no more each second than its tier.
    :ivar throttle: counts what clients do each second; None = no throttling.
    :ivar access_policies: the shared access policies of the namespace and its entities.
    :ivar auto_delete: deletes idle entities.
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
        min_message_kilobytes: int = 1,
        tier: Tier | None = None,
        throttle: bool = False,
    ) -> None:
        snapshot = Snapshot() if snapshot is None else snapshot
        self._effects = PendingEffects()
        context = Context(
            clock=SystemClock() if clock is None else clock,
            journal=Journal() if journal is None else journal,
            effects=self._effects,
            random_bytes=random_bytes,
            identify=identify,
            row_ids=count(snapshot.last_row_id + 1),
            codec=NoPropertyCodec() if codec is None else codec,
            deliver_pings=deliver_pings,
        )
        super().__init__(name, context=context)
        self.min_message_kilobytes = min_message_kilobytes
        self.tier = tier
        self.throttle = Throttle(name, clock=context.clock, tier=tier) if throttle else None
        self._timers: TimerHeap[TimerDriven] = TimerHeap()
        self._keys = count(max((record.key for record in snapshot.entities), default=0) + 1)
        self._forwarder = Forwarder(self.find, clock=self._context.clock)
        self.access_policies = SharedAccessPolicies(self, context=self._context, persisted=snapshot.access_policies)
        self.auto_delete = AutoDelete(clock=self._context.clock, effects=self._effects, delete=self._delete_idle)
        for entity in self._restore(snapshot):
            self._start(entity)

    # Entity management

    def create(self, description: Description) -> Description:
        """Create a queue, topic or subscription; return its description.

        :raises EntityNotFound: when the topic of a subscription does not exist.
        :raises EntityExists: when the path is in use.
        :raises DescriptionError: when a rule of a subscription cannot be evaluated.
        :raises InvalidArgument: when a forwarding target does not exist.
        """
        description = self._adjusted(description, before=None)
        for rule in description.rules if isinstance(description, SubscriptionDescription) else ():
            check_rule(rule)
        self._check_path_free(description)
        self._forwarder.check(description, before=None)
        self._start(self._register(self._new_record(description)))
        return description

    def create_queue(self, description: QueueDescription) -> Description:
        """Create a queue. See :meth:`create`."""
        return self.create(description)

    def create_topic(self, description: TopicDescription) -> Description:
        """Create a topic. See :meth:`create`."""
        return self.create(description)

    def create_subscription(self, description: SubscriptionDescription) -> Description:
        """Create a subscription. See :meth:`create`."""
        return self.create(description)

    def update(self, description: Description) -> Description:
        """Replace the description of an entity and return it.

        :raises EntityNotFound: when the entity does not exist.
        :raises InvalidArgument: when a field differs that is fixed at creation, or a new forwarding target does not
            exist.
        """
        entity = self._entity_of(description)
        description = self._adjusted(description, before=entity.description)
        try:
            check_update(entity.description, proposed=description)
        except DescriptionError as error:
            raise InvalidArgument(str(error)) from error
        self._forwarder.check(description, before=entity.description)
        entity.update(description)
        if not isinstance(entity, TopicEntity):
            self._forwarder.connect(entity)
        self._save_update(entity)
        return description

    def add_rule(self, topic: str, name: str, rule: RuleDescription) -> None:
        """Add a rule to a subscription.

        :raises EntityNotFound: when the topic or subscription does not exist.
        :raises EntityExists: when the subscription has a rule of that name.
        :raises DescriptionError: when the rule cannot be evaluated.
        """
        self._subscription(topic, name).add_rule(rule)
        self._context.journal.commit()

    def update_rule(self, topic: str, name: str, rule: RuleDescription) -> None:
        """Replace the rule of the same name in a subscription.

        :raises EntityNotFound: when the topic, subscription or rule does not exist.
        :raises DescriptionError: when the rule cannot be evaluated.
        """
        self._subscription(topic, name).update_rule(rule)
        self._context.journal.commit()

    def remove_rule(self, topic: str, name: str, rule: str) -> None:
        """Remove a rule from a subscription.

        :raises EntityNotFound: when the topic, subscription or rule does not exist.
        """
        self._subscription(topic, name).remove_rule(rule)
        self._context.journal.commit()

    def delete(self, description: Description) -> None:
        """Delete an entity with its messages, and with a topic its subscriptions.

        :raises EntityNotFound: when the entity does not exist.
        """
        entity = self._entity_of(description)
        match description:
            case QueueDescription():
                del self._queues[description.path.casefold()]
            case TopicDescription():
                del self._topics[description.path.casefold()]
                for subscription in entity.subscriptions.values():
                    self._finish_delete(subscription)
            case SubscriptionDescription():
                del self._topic(description.topic_path).subscriptions[description.name.casefold()]
        self._finish_delete(entity)

    def delete_queue(self, path: str) -> None:
        """Delete the queue at a path. See :meth:`delete`."""
        self.delete(self.get_queue(path))

    def counts(self, path: str) -> MessageCounts:
        """Return the number of messages in an entity; a subscription's path is ``topic/Subscriptions/name``.

        :raises EntityNotFound: when the entity does not exist.
        """
        self.advance()
        return self.find(path).counts()

    def transfer(self, contents: Sequence[Content], *, via: QueueEntity | SubscriptionEntity, target: str) -> None:
        """Send messages that the entity `via` accepted to the queue or topic at a path, or dead-letter them there."""
        self._forwarder.transfer(contents, via=via, target=target)

    def set_tier(self, tier: Tier, *, units: int = 1) -> None:
        """Accept from now on what a tier of the service does.

        :param units: the messaging units of Premium.
        """
        self.tier = tier
        if self.throttle is not None:
            self.throttle = Throttle(self.name, clock=self._context.clock, tier=tier, units=units)

    # Timers, durability and effects

    def advance(self) -> None:
        """Do the work of all entities that is due, and delete idle entities.

        :raises JournalError: when a deletion cannot be persisted.
        """
        if len(self._effects.deadline_changes) > 0:
            self._update_timers()
        for component in self._timers.pop_due(self._context.clock.now()):
            component.advance()
            self._effects.changed(component)

    def now(self) -> int:
        """Return the namespace's time, in milliseconds since 1970."""
        return self._context.clock.now()

    def register_timer(self, component: TimerDriven) -> None:
        """Advance a component when it is due. Call again whenever its due time may have changed."""
        self._effects.changed(component)

    def next_due(self) -> int | None:
        """Return when :meth:`advance` next has work to do (milliseconds since 1970), or None."""
        self._update_timers()
        return self._timers.next_due()

    @property
    def not_before(self) -> float:
        """A lower bound of :meth:`next_due`, in a fraction of the time."""
        if len(self._effects.deadline_changes) > 0:
            self._update_timers()
        return self._timers.not_before

    @property
    def is_durable(self) -> bool:
        """Whether :meth:`commit` persists anything."""
        return self._context.journal.is_durable

    def commit(self) -> None:
        """Persist all changes so far.

        :raises JournalError: when that fails; then the namespace must not be used any longer.
        """
        self._context.journal.commit()

    def on_effects(self, callback: Callable[[], None]) -> None:
        """Set the callback for the first effect after each :meth:`take_effects`."""
        self._effects.on_first = callback

    def take_effects(self) -> EffectBatch:
        """Return the effects since the last call."""
        return self._effects.take()

    # Internals

    def _adjusted(self, description: Description, *, before: Description | None) -> Description:
        check_tier(description, tier=self.tier)
        if self.tier is None:
            description = with_min_message_size(description, kilobytes=self.min_message_kilobytes)
        return adjusted(description, before=before, tier=self.tier)

    def _update_timers(self) -> None:
        changes = tuple(self._effects.deadline_changes)
        self._effects.deadline_changes.clear()
        for component in changes:
            due = component.next_due()
            if due is None:
                self._timers.discard(component)
            else:
                self._timers.set(component, due)

    def _start(self, entity: AnyEntity) -> None:
        self.auto_delete.watch(entity)
        if not isinstance(entity, TopicEntity):
            self._forwarder.connect(entity)

    def _delete_idle(self, entity: AnyEntity) -> None:
        description = entity.description
        self.delete(description)
        fields = event("deleted-idle", namespace=self.name, entity=description.path)
        idle = description.auto_delete_on_idle
        _log.info("namespace %s: deleted %s, idle for %s", self.name, description.path, idle, extra=fields)

    def _new_record(self, description: Description) -> EntityRecord:
        now = self._context.clock.now()
        record = EntityRecord(
            key=next(self._keys), description=description, created=now, updated=now, accessed=0, last_number=0
        )
        self._context.journal.save_entity(record)
        self._context.journal.commit()
        return record

    def _save_update(self, entity: AnyEntity) -> None:
        entity.updated = self._context.clock.now()
        entity.touch()
        self.auto_delete.watch(entity)
        self._context.journal.save_entity(entity.record(entity.description))
        self._context.journal.commit()
        self._effects.invalidated(entity.key)

    def _finish_delete(self, entity: AnyEntity) -> None:
        entity.deleted = True
        self.auto_delete.unwatch(entity)
        if not isinstance(entity, TopicEntity):
            for queue in entity.queues():
                queue.set_forwarder(None)
        queue_keys = [entity.queue_key(sub_queue) for sub_queue in SubQueue]
        self._context.journal.delete_entity(entity.key, queues=queue_keys)
        self._context.journal.commit()
        self._effects.invalidated(entity.key)
