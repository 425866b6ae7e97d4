"""Topics and subscriptions."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from uuid import UUID

from servicebus_emulator.engine.model.descriptions import MessageCounts, SubscriptionDescription, TopicDescription
from servicebus_emulator.engine.model.errors import EntityExists, EntityNotFound
from servicebus_emulator.engine.model.message import Content, DeadLetterInfo, ForwardingHistory, Message
from servicebus_emulator.engine.model.queue_settings import QueueSettings, milliseconds, min_or_none
from servicebus_emulator.engine.model.rule_descriptions import RuleDescription
from servicebus_emulator.engine.namespace.entities import Entity, ReceivableEntity, SubQueue
from servicebus_emulator.engine.queue.ingress import Ingress
from servicebus_emulator.engine.queue.schedule import Schedule
from servicebus_emulator.engine.queue.sequence_index import SequenceIndex
from servicebus_emulator.engine.runtime.context import Context
from servicebus_emulator.engine.runtime.journal import EntityRecord
from servicebus_emulator.engine.runtime.rule_set import PublishedMessage, RuleSet, check_rule
from servicebus_emulator.engine.sql.errors import SqlEvaluationError
from servicebus_emulator.logs import event

_NO_SESSION = DeadLetterInfo(
    "Session ID is null", "Session enabled entity doesn't allow a message whose session identifier is null."
)
_FILTER_FAILED = "FilterEvaluationException"

_log = logging.getLogger(__name__)


class SubscriptionEntity(ReceivableEntity):
    """A subscription of a topic."""

    def __init__(self, record: EntityRecord, *, description: SubscriptionDescription, context: Context) -> None:
        super().__init__(record, settings=QueueSettings.of(description), context=context)
        self.description = description
        self._rules = self._compile_rules()

    def update(self, description: SubscriptionDescription) -> None:
        """Apply a new description."""
        self.description = description
        self._rules = self._compile_rules()
        self._apply(QueueSettings.of(description))

    def add_rule(self, rule: RuleDescription) -> None:
        """Add a rule. Rule changes are durable after the next commit.

        :raises EntityExists: when a rule of that name exists.
        :raises DescriptionError: when the rule cannot be evaluated.
        """
        if self.description.find_rule(rule.name) is not None:
            raise EntityExists(f"{self.description.path!r} has a rule {rule.name!r} already; choose another name")
        check_rule(rule)
        self._set_rules((*self.description.rules, rule))

    def update_rule(self, rule: RuleDescription) -> None:
        """Replace the rule of the same name, keeping its position.

        :raises EntityNotFound: when no rule of that name exists.
        :raises DescriptionError: when the rule cannot be evaluated.
        """
        current = self._get_rule(rule.name)
        check_rule(rule)
        # Names are case-insensitive; the original spelling is kept.
        updated = replace(rule, name=current.name)
        self._set_rules(tuple(updated if each is current else each for each in self.description.rules))

    def remove_rule(self, name: str) -> None:
        """Remove a rule. Without any rule the subscription receives nothing.

        :raises EntityNotFound: when no rule of that name exists.
        """
        removed = self._get_rule(name)
        self._set_rules(tuple(each for each in self.description.rules if each is not removed))

    def _get_rule(self, name: str) -> RuleDescription:
        rule = self.description.find_rule(name)
        if rule is None:
            raise EntityNotFound(f"subscription {self.description.path!r} has no rule {name!r}")
        return rule

    def publish(
        self,
        message: PublishedMessage,
        *,
        enqueued_sequence_number: int,
        time_to_live: int | None,
        forwarding: ForwardingHistory | None = None,
    ) -> None:
        """Store what the rules select of a message sent to the topic, unless the status forbids sending."""
        if not self.description.status.accepts_sends:
            return
        for content, obstacle in self._select(message):
            queue = self.main
            if obstacle is not None:
                self.main.counters.dead_lettered += 1
                queue = self.sub_queue(SubQueue.DEAD_LETTER)
            queue.add(
                content,
                number=self.sequence.next(),
                time_to_live=time_to_live if obstacle is None else None,
                enqueued_sequence_number=enqueued_sequence_number,
                dead_letter=obstacle,
                forwarding=forwarding,
            )

    def _select(self, message: PublishedMessage) -> list[tuple[Content, DeadLetterInfo | None]]:
        """Return what the subscription receives of a message, and why it must be dead-lettered, if it must."""
        try:
            contents = self._rules.select(message)
        except SqlEvaluationError as error:
            if self.description.dead_lettering_on_filter_evaluation_exceptions:
                return [(message.content, DeadLetterInfo(_FILTER_FAILED, str(error)))]
            fields = event("message-skipped", entity=self.description.path)
            _log.warning("subscription %s: skipped a message: %s", self.description.path, error, extra=fields)
            return []
        required = self.description.requires_session
        return [(each, _NO_SESSION if required and each.session_id is None else None) for each in contents]

    def _set_rules(self, rules: tuple[RuleDescription, ...]) -> None:
        self.description = replace(self.description, rules=rules)
        self._rules = self._compile_rules(earlier=self._rules)
        self.updated = self._context.clock.now()
        self.touch()
        self._context.journal.save_entity(self.record(self.description))

    def _compile_rules(self, *, earlier: RuleSet | None = None) -> RuleSet:
        def new_uuid() -> UUID:
            return UUID(bytes=self._context.random_bytes(16), version=4)

        return RuleSet(self.description.rules, new_uuid=new_uuid, earlier=earlier)


class TopicEntity(Entity):
    """A topic: publishes each message to all of its subscriptions.

    :ivar subscriptions: by case-folded name.
    """

    def __init__(self, record: EntityRecord, *, description: TopicDescription, context: Context) -> None:
        super().__init__(record, context=context)
        self.description = description
        self.ingress = Ingress(record.key, description=description, context=context)
        self.subscriptions: dict[str, SubscriptionEntity] = {}
        self._index = SequenceIndex()
        self._schedule = Schedule(
            self.queue_key(SubQueue.MAIN), index=self._index, context=context, sequence=self.sequence
        )

    def update(self, description: TopicDescription) -> None:
        """Apply a new description."""
        self.description = description
        self.ingress.update(description)

    @property
    def size_in_bytes(self) -> int:
        """The total size of all messages, including those of the subscriptions."""
        return self._index.size_in_bytes + sum(each.size_in_bytes for each in self.subscriptions.values())

    def counts(self) -> MessageCounts:
        """Return the number of messages; a topic itself holds only scheduled ones."""
        return MessageCounts(scheduled=len(self._schedule))

    def check(self, contents: Sequence[Content]) -> None:
        """Check that messages would be accepted.

        :raises EntityDisabled, QuotaExceeded: see :func:`check_send`.
        """
        self.ingress.check(contents, size_in_bytes=self.size_in_bytes)

    def send(self, contents: Sequence[Content], *, checked: bool = False) -> None:
        """Accept messages, all or none. Pings and duplicates are accepted but not published.

        :param checked: whether :meth:`check` has accepted them.
        :raises EntityDisabled, QuotaExceeded: see :func:`check_send`.
        """
        accepted = self.ingress.accept(contents, size_in_bytes=None if checked else self.size_in_bytes)
        now = self._context.clock.now()
        self.sequence.touch()
        for content in accepted:
            if content.scheduled_for is not None and content.scheduled_for > now:
                self._schedule_one(content, due=content.scheduled_for)
            else:
                self._publish(content, number=self.sequence.next())

    def accept_forwarded(self, content: Content, *, forwarding: ForwardingHistory) -> None:
        """Accept a message that another entity forwards.

        :raises EntityDisabled, QuotaExceeded: see :func:`check_send`.
        """
        for accepted in self.ingress.accept([content], size_in_bytes=self.size_in_bytes):
            self._publish(accepted, number=self.sequence.next(), forwarding=forwarding)

    def schedule(self, contents: Sequence[Content]) -> list[int]:
        """Accept messages for a later time, all or none.

        :return: the sequence numbers by which they can be cancelled; 0 for duplicates.
        :raises EntityDisabled, QuotaExceeded: see :func:`check_send`.
        """
        return self.ingress.schedule(
            contents, size_in_bytes=self.size_in_bytes, add=lambda content, due: self._schedule_one(content, due=due)
        )

    def cancel(self, numbers: Iterable[int]) -> None:
        """Cancel scheduled messages, all or none.

        :raises MessageNotFound: when one of them is not scheduled (any more).
        """
        self.advance()
        self._schedule.cancel(numbers)
        self._context.effects.changed(self)

    def next_due(self) -> int | None:
        """Return when the next scheduled message is published, or None. A deleted topic publishes nothing."""
        return None if self.deleted else self._schedule.next_due()

    def advance(self) -> None:
        """Publish the scheduled messages that are due."""
        if self.deleted:
            return
        for message in self._schedule.activate(self._context.clock.now()):
            self._index.remove(message)
            self._context.journal.remove(message)
            self._publish(message.content, number=message.sequence_number)

    def restore(self, message: Message) -> None:
        """Restore a scheduled message after a restart."""
        self._index.add(message)
        self._schedule.restore(message)
        self._context.effects.changed(self)

    def _schedule_one(self, content: Content, *, due: int) -> int:
        self._context.effects.changed(self)
        return self._schedule.add(content, due=due)

    def _publish(self, content: Content, *, number: int, forwarding: ForwardingHistory | None = None) -> None:
        default = milliseconds(self.description.default_message_time_to_live)
        time_to_live = min_or_none(content.time_to_live, default)
        message = PublishedMessage(content, codec=self._context.codec)
        for subscription in self.subscriptions.values():
            subscription.publish(
                message, enqueued_sequence_number=number, time_to_live=time_to_live, forwarding=forwarding
            )
