"""The entities of a namespace by path. Paths are case-insensitive and keep the spelling of their creation."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from servicebus_emulator.engine.model.descriptions import (
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.errors import EntityExists, EntityNotFound
from servicebus_emulator.engine.namespace.entities import QueueEntity, split_queue_key
from servicebus_emulator.engine.namespace.topics import SubscriptionEntity, TopicEntity
from servicebus_emulator.engine.runtime.context import Context
from servicebus_emulator.engine.runtime.journal import EntityRecord, Snapshot

AnyEntity = QueueEntity | TopicEntity | SubscriptionEntity

_NEVER = datetime.min.replace(tzinfo=UTC)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SUBSCRIPTIONS = "/subscriptions/"


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityTimes:
    """When an entity was created, updated and last accessed (UTC, aware). Before the first access that is year 1."""

    created: datetime
    updated: datetime
    accessed: datetime


class EntityRegistry:
    """Looks up entities by path: a queue, a topic, or ``topic/Subscriptions/name``.

    :ivar name: the namespace's name, for error messages.
    """

    def __init__(self, name: str, *, context: Context) -> None:
        self.name = name
        self._context = context
        self._queues: dict[str, QueueEntity] = {}
        self._topics: dict[str, TopicEntity] = {}

    def find(self, path: str) -> AnyEntity:
        """Return the entity at a path: a queue, a topic, or ``topic/Subscriptions/name``.

        :raises EntityNotFound: when there is none.
        """
        key = path.casefold()
        topic, separator, name = key.rpartition(_SUBSCRIPTIONS)
        if separator != "":
            return self._subscription(topic, name)
        entity = self._queues.get(key) or self._topics.get(key)
        if entity is None:
            raise self._not_found(path, kind="an entity")
        return entity

    def get_queue(self, path: str) -> QueueDescription:
        """Return the description of a queue.

        :raises EntityNotFound: when the queue does not exist.
        """
        return self._queue(path).description

    def get_topic(self, path: str) -> TopicDescription:
        """Return the description of a topic.

        :raises EntityNotFound: when the topic does not exist.
        """
        return self._topic(path).description

    def get_subscription(self, topic: str, name: str) -> SubscriptionDescription:
        """Return the description of a subscription.

        :raises EntityNotFound: when the topic or subscription does not exist.
        """
        return self._subscription(topic, name).description

    def get_entity(self, path: str) -> Description:
        """Return the description of the entity at a path.

        :raises EntityNotFound: when there is none.
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

        :raises EntityNotFound: when the topic does not exist.
        """
        subscriptions = self._topic(topic).subscriptions
        return tuple(subscriptions[name].description for name in sorted(subscriptions))

    def size_in_bytes(self, path: str) -> int:
        """Return the total size of an entity's messages.

        :raises EntityNotFound: when the entity does not exist.
        """
        return self.find(path).size_in_bytes

    def times(self, path: str) -> EntityTimes:
        """Return when an entity was created, updated and last accessed.

        :raises EntityNotFound: when the entity does not exist.
        """
        entity = self.find(path)
        return EntityTimes(
            created=_to_datetime(entity.created),
            updated=_to_datetime(entity.updated),
            accessed=_NEVER if entity.sequence.accessed == 0 else _to_datetime(entity.sequence.accessed),
        )

    # Internals

    def _queue(self, path: str) -> QueueEntity:
        entity = self._queues.get(path.casefold())
        if entity is None:
            raise self._not_found(path, kind="a queue")
        return entity

    def _topic(self, path: str) -> TopicEntity:
        entity = self._topics.get(path.casefold())
        if entity is None:
            raise self._not_found(path, kind="a topic")
        return entity

    def _subscription(self, topic: str, name: str) -> SubscriptionEntity:
        entity = self._topic(topic).subscriptions.get(name.casefold())
        if entity is None:
            raise self._not_found(f"{topic}/Subscriptions/{name}", kind="a subscription")
        return entity

    def _not_found(self, path: str, *, kind: str) -> EntityNotFound:
        # The JavaScript client recognizes this error by the service's words "messaging entity ... could not be found".
        return EntityNotFound(
            f"the messaging entity {path!r} could not be found as {kind} of namespace {self.name!r}; create it first"
        )

    def _entity_of(self, description: Description) -> Any:
        """Return the entity of a description; it accepts descriptions of the same kind only."""
        match description:
            case QueueDescription():
                return self._queue(description.path)
            case TopicDescription():
                return self._topic(description.path)
            case SubscriptionDescription():
                return self._subscription(description.topic_path, description.name)

    def _check_path_free(self, description: Description) -> None:
        existing: AnyEntity | None
        if isinstance(description, SubscriptionDescription):
            existing = self._topic(description.topic_path).subscriptions.get(description.name.casefold())
        else:
            key = description.path.casefold()
            existing = self._queues.get(key) or self._topics.get(key)
        if existing is not None:
            raise EntityExists(f"{existing.description.path!r} exists already in namespace {self.name!r}")

    def _register(self, record: EntityRecord) -> AnyEntity:
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
        topics_first = sorted(
            snapshot.entities, key=lambda record: isinstance(record.description, SubscriptionDescription)
        )
        entities = {record.key: self._register(record) for record in topics_first}
        for queue_key, message in snapshot.messages:
            key, sub_queue = split_queue_key(queue_key)
            entity = entities[key]
            if isinstance(entity, TopicEntity):
                entity.restore(message)
            else:
                entity.sub_queue(sub_queue).restore(message)
        for key, identity, seen_at in snapshot.seen:
            entity = entities[key]
            if not isinstance(entity, SubscriptionEntity) and entity.ingress.duplicate_detector is not None:
                entity.ingress.duplicate_detector.restore(identity, seen_at=seen_at)
        for queue_key, session_id, state, at in snapshot.session_states:
            entity = entities[split_queue_key(queue_key)[0]]
            if not isinstance(entity, TopicEntity):
                entity.main.restore_session_state(session_id, state, at=at)
        return entities.values()


def _to_datetime(milliseconds: int) -> datetime:
    return _EPOCH + timedelta(milliseconds=milliseconds)


def deleted_error(entity: AnyEntity) -> EntityNotFound | None:
    """Return the error for users of a deleted entity; None = the entity exists."""
    if not entity.deleted:
        return None
    return EntityNotFound(f"the messaging entity {entity.description.path!r} could not be found: it was deleted")
