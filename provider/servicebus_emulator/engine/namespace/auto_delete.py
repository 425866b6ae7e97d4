"""Deletion of entities that have been idle for their ``auto_delete_on_idle`` time.

What counts as a use follows Microsoft's documentation of auto-delete. For a queue or subscription: an attached
receiver, a request to its management node (peek, renew, schedule), a forwarded message, an updated description, or
scheduled messages; sending alone does not count. For a topic: a message sent or scheduled, an updated description, or a
use of one of its subscriptions. A restart counts as well, because nothing could be used while the namespace was down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from servicebus_emulator.engine.model.queue_settings import milliseconds
from servicebus_emulator.engine.namespace.entity_registry import AnyEntity
from servicebus_emulator.engine.namespace.topics import SubscriptionEntity, TopicEntity

if TYPE_CHECKING:
    from servicebus_emulator.engine.model.clock import Clock
    from servicebus_emulator.engine.runtime.pending_effects import PendingEffects


class AutoDelete:
    """Deletes idle entities of a namespace. Entities without an idle time have no timer.

    :param delete: deletes an entity.
    :ivar has_receiver: returns whether a receiver is attached to the entity with a key.
    """

    def __init__(self, *, clock: Clock, effects: PendingEffects, delete: Callable[[AnyEntity], None]) -> None:
        self.has_receiver: Callable[[int], bool] = lambda _: False
        self._clock = clock
        self._effects = effects
        self._delete = delete
        self._timers: dict[int, _IdleTimer] = {}

    def watch(self, entity: AnyEntity) -> None:
        """Start or update the timer of an entity with a new or changed description."""
        timer = self._timers.get(entity.key)
        if timer is None and entity.description.auto_delete_on_idle.unbounded:
            return
        if timer is None:
            timer = self._timers[entity.key] = _IdleTimer(entity, owner=self)
        self._effects.changed(timer)

    def unwatch(self, entity: AnyEntity) -> None:
        """Remove the timer of a deleted entity."""
        timer = self._timers.pop(entity.key, None)
        if timer is not None:
            self._effects.changed(timer)

    def delete_if_idle(self, entity: AnyEntity) -> None:
        """Delete an entity whose idle time has elapsed, unless it is in use."""
        if entity.counts().scheduled > 0 or any(
            self.has_receiver(each.key) for each in (entity, *_subscriptions_of(entity))
        ):
            entity.touch()
        elif _idle_deadline(entity) <= self._clock.now():
            self._delete(entity)


class _IdleTimer:
    """The idle timer of one entity."""

    __slots__ = ("_entity", "_owner")

    def __init__(self, entity: AnyEntity, *, owner: AutoDelete) -> None:
        self._entity = entity
        self._owner = owner

    def next_due(self) -> int | None:
        """Return when the entity is deleted if it is not used until then, or None."""
        if self._entity.deleted or self._entity.description.auto_delete_on_idle.unbounded:
            return None
        return _idle_deadline(self._entity)

    def advance(self) -> None:
        """Delete the entity if it has been idle."""
        if self.next_due() is not None:
            self._owner.delete_if_idle(self._entity)


def _idle_deadline(entity: AnyEntity) -> int:
    span = milliseconds(entity.description.auto_delete_on_idle)
    last_used = max(each.last_used for each in (entity, *_subscriptions_of(entity)))
    if isinstance(entity, TopicEntity):
        last_used = max(last_used, entity.sequence.accessed)
    return last_used + (0 if span is None else span)


def _subscriptions_of(entity: AnyEntity) -> tuple[SubscriptionEntity, ...]:
    return tuple(entity.subscriptions.values()) if isinstance(entity, TopicEntity) else ()
