"""The entities of a namespace by their paths, which are compared without case and keep their first spelling."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from servicebus_emulator.engine.context import Context
from servicebus_emulator.engine.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from servicebus_emulator.engine.entities import QueueEntity, SubscriptionEntity, TopicEntity, locate_queue
from servicebus_emulator.engine.errors import EntityExists, EntityNotFound
from servicebus_emulator.engine.journal import Description, EntityRecord, Snapshot

__all__ = ["AnyEntity", "Directory", "EntityTimes"]

AnyEntity = QueueEntity | TopicEntity | SubscriptionEntity

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SUBSCRIPTIONS = "/subscriptions/"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityTimes:
    """When an entity was created, last described anew, and last used (UTC, aware)."""

    created: datetime
    updated: datetime
    accessed: datetime


class Directory:
    """What there is, by path: a queue, a topic, or ``topic/Subscriptions/name``.

    :ivar name: the namespace's name, for who looks for what there is not.
    """

    def __init__(self, name: str, *, context: Context) -> None:
        self.name = name
        self._context = context
        self._queues: dict[str, QueueEntity] = {}
        self._topics: dict[str, TopicEntity] = {}

    def find(self, path: str) -> AnyEntity:
        """Return what has the path: a queue, a topic, or ``topic/Subscriptions/name``.

        :raises EntityNotFound: when nothing has it.
        """
        key = path.casefold()
        topic, separator, name = key.rpartition(_SUBSCRIPTIONS)
        if separator != "":
            return self._subscription(topic, name)
        entity = self._queues.get(key) or self._topics.get(key)
        if entity is None:
            raise self._missing(path, wanted="an entity")
        return entity

    def get_queue(self, path: str) -> QueueDescription:
        """Return a queue's description.

        :raises EntityNotFound: when there is no such queue.
        """
        return self._queue(path).description

    def get_topic(self, path: str) -> TopicDescription:
        """Return a topic's description.

        :raises EntityNotFound: when there is no such topic.
        """
        return self._topic(path).description

    def get_subscription(self, topic: str, name: str) -> SubscriptionDescription:
        """Return a subscription's description.

        :raises EntityNotFound: when there is no such topic or subscription.
        """
        return self._subscription(topic, name).description

    def get_entity(self, path: str) -> Description:
        """Return the description of what has the path: a queue, a topic, or ``topic/Subscriptions/name``.

        :raises EntityNotFound: when nothing has it.
        """
        return self.find(path).description

    def list_queues(self) -> tuple[QueueDescription, ...]:
        """Return all queues, sorted by path."""
        return tuple(self._queues[path].description for path in sorted(self._queues))

    def list_topics(self) -> tuple[TopicDescription, ...]:
        """Return all topics, sorted by path."""
        return tuple(self._topics[path].description for path in sorted(self._topics))

    def list_subscriptions(self, topic: str) -> tuple[SubscriptionDescription, ...]:
        """Return all subscriptions of a topic, sorted by name.

        :raises EntityNotFound: when there is no such topic.
        """
        subscriptions = self._topic(topic).subscriptions
        return tuple(subscriptions[name].description for name in sorted(subscriptions))

    def size_in_bytes(self, path: str) -> int:
        """Return how many bytes of messages an entity holds.

        :raises EntityNotFound: when nothing has the path.
        """
        return self.find(path).size_in_bytes

    def times(self, path: str) -> EntityTimes:
        """Return when an entity was created, described and used.

        :raises EntityNotFound: when nothing has the path.
        """
        entity = self.find(path)
        return EntityTimes(
            created=_moment(entity.created),
            updated=_moment(entity.updated),
            accessed=_moment(entity.sequence.accessed),
        )

    # Steps

    def _queue(self, path: str) -> QueueEntity:
        entity = self._queues.get(path.casefold())
        if entity is None:
            raise self._missing(path, wanted="a queue")
        return entity

    def _topic(self, path: str) -> TopicEntity:
        entity = self._topics.get(path.casefold())
        if entity is None:
            raise self._missing(path, wanted="a topic")
        return entity

    def _subscription(self, topic: str, name: str) -> SubscriptionEntity:
        entity = self._topic(topic).subscriptions.get(name.casefold())
        if entity is None:
            raise self._missing(f"{topic}/Subscriptions/{name}", wanted="a subscription")
        return entity

    def _missing(self, path: str, *, wanted: str) -> EntityNotFound:
        """Say what is missing. The JavaScript client tells this from other refusals by the service's phrase."""
        return EntityNotFound(
            f"the messaging entity {path!r} could not be found as {wanted} of namespace {self.name!r}; create it first"
        )

    def _check_free(self, path: str) -> None:
        taken = self._queues.get(path.casefold()) or self._topics.get(path.casefold())
        if taken is not None:
            raise EntityExists(f"{taken.description.path!r} exists already in namespace {self.name!r}")

    def _adopt(self, record: EntityRecord) -> AnyEntity:
        description = record.description
        if isinstance(description, QueueDescription):
            queue = QueueEntity(record, description=description, context=self._context)
            return self._queues.setdefault(description.path.casefold(), queue)
        if isinstance(description, TopicDescription):
            topic = TopicEntity(record, description=description, context=self._context)
            return self._topics.setdefault(description.path.casefold(), topic)
        subscription = SubscriptionEntity(record, description=description, context=self._context)
        subscriptions = self._topic(description.topic_path).subscriptions
        return subscriptions.setdefault(description.name.casefold(), subscription)

    def _restore(self, snapshot: Snapshot) -> Iterable[AnyEntity]:
        subscriptions_last = sorted(
            snapshot.entities, key=lambda record: isinstance(record.description, SubscriptionDescription)
        )
        entities = {record.key: self._adopt(record) for record in subscriptions_last}
        for key, message in snapshot.messages:
            owner, part = locate_queue(key)
            entity = entities[owner]
            if isinstance(entity, TopicEntity):
                entity.restore(message)
            else:
                entity.part(part).restore(message)
        for key, identity, seen_at in snapshot.seen:
            receiving = entities[key]
            if not isinstance(receiving, SubscriptionEntity) and receiving.reception.history is not None:
                receiving.reception.history.restore(identity, seen_at=seen_at)
        for key, session_id, state, at in snapshot.session_states:
            entity = entities[locate_queue(key)[0]]
            if not isinstance(entity, TopicEntity):
                entity.main.restore_session_state(session_id, state, at=at)
        return entities.values()


def _moment(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)
