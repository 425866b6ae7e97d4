"""Entities that are deleted when nobody has used them for a while.

What counts as use is what Microsoft's documentation of auto-delete names. A queue or subscription: a
receiver that is linked to it, a request to its management node (browsing, renewing, scheduling), a
message passed on, a new description, messages scheduled. What is merely sent to it does not count. A
topic: a message sent or scheduled, a new description, any use of its subscriptions. A restart counts too:
while the namespace was down, nobody could use anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from servicebus_emulator.engine.entities import QueueEntity, SubscriptionEntity, TopicEntity
from servicebus_emulator.engine.settings import milliseconds

if TYPE_CHECKING:
    from servicebus_emulator.engine.clock import Clock
    from servicebus_emulator.engine.effects import Effects

__all__ = ["IdleWatch"]

_Entity = QueueEntity | TopicEntity | SubscriptionEntity


class IdleWatch:
    """Watches those entities of a namespace that end when they are idle; the others cost nothing.

    :ivar in_use: tells whether a receiver is linked to the entity with this key.
    :param delete: deletes an entity.
    """

    def __init__(self, *, clock: Clock, effects: Effects, delete: Callable[[_Entity], None]) -> None:
        self.in_use: Callable[[int], bool] = lambda _: False
        self._clock = clock
        self._effects = effects
        self._delete = delete
        self._watched: dict[int, _Watched] = {}

    def watch(self, entity: _Entity) -> None:
        """Go by an entity's description, new or changed."""
        watched = self._watched.get(entity.key)
        if watched is None and entity.description.auto_delete_on_idle.unbounded:
            return
        if watched is None:
            watched = self._watched[entity.key] = _Watched(entity, watch=self)
        self._effects.changed(watched)

    def end(self, entity: _Entity) -> None:
        """Forget an entity that is deleted."""
        watched = self._watched.pop(entity.key, None)
        if watched is not None:
            self._effects.changed(watched)

    def review(self, entity: _Entity) -> None:
        """Delete an entity whose time is over, unless it is in use now."""
        if _has_scheduled(entity) or any(self.in_use(each.key) for each in (entity, *_subscriptions_of(entity))):
            entity.touch()
        elif _end_of(entity) <= self._clock.now():
            self._delete(entity)


class _Watched:
    """One entity, with the time at which to look at it next."""

    __slots__ = ("_entity", "_watch")

    def __init__(self, entity: _Entity, *, watch: IdleWatch) -> None:
        self._entity = entity
        self._watch = watch

    def next_due(self) -> int | None:
        """Return when the entity would be deleted if nobody used it from now on."""
        if self._entity.deleted or self._entity.description.auto_delete_on_idle.unbounded:
            return None
        return _end_of(self._entity)

    def advance(self) -> None:
        """Delete the entity, unless it was used meanwhile."""
        if self.next_due() is not None:
            self._watch.review(self._entity)


def _end_of(entity: _Entity) -> int:
    span = milliseconds(entity.description.auto_delete_on_idle)
    last_use = max(each.last_use for each in (entity, *_subscriptions_of(entity)))
    if isinstance(entity, TopicEntity):
        last_use = max(last_use, entity.sequence.accessed)
    return last_use + (0 if span is None else span)


def _subscriptions_of(entity: _Entity) -> tuple[SubscriptionEntity, ...]:
    return tuple(entity.subscriptions.values()) if isinstance(entity, TopicEntity) else ()


def _has_scheduled(entity: _Entity) -> bool:
    return entity.counts().scheduled > 0
