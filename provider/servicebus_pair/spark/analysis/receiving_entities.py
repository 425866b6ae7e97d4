"""The queues and subscriptions in which the messages of an entity arrive, as given to the reconcile job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from servicebus_pair.core.errors import ConfigurationError

_SUBSCRIPTIONS: Final = "/subscriptions/"


@dataclass(frozen=True, slots=True)
class ReceivingEntity:
    """A queue or subscription of the primary, and the entity whose messages arrive there.

    :param path: ``flights``, or ``delays/Subscriptions/all``.
    :param entity: what senders send to: the queue itself, or the topic.
    :param tap: nothing receives from it, so that its copies prove what arrived.
    """

    path: str
    entity: str
    tap: bool = False

    @classmethod
    def parse(cls, text: str, *, tap: bool = False) -> ReceivingEntity:
        """Parse ``path`` or ``path=entity``; without ``entity``, it is derived from the path.

        :raises ConfigurationError: path or entity is empty.
        """
        path, separator, entity = (part.strip() for part in text.partition("="))
        if not separator:
            entity = path[: path.casefold().find(_SUBSCRIPTIONS)] if _SUBSCRIPTIONS in path.casefold() else path
        if not path or not entity:
            raise ConfigurationError(
                f"entity {text!r} is invalid: allowed are queue, topic/Subscriptions/name and path=entity"
            )
        return cls(path, entity, tap)


def parse_receiving_entities(text: str, *, taps: str | None = None) -> tuple[ReceivingEntity, ...]:
    """Parse comma-separated lists of receiving entities and of taps.

    :raises ConfigurationError: an item is invalid, or a path is repeated.
    """
    entities = tuple(ReceivingEntity.parse(part) for part in text.split(","))
    if taps is not None:
        entities += tuple(ReceivingEntity.parse(part, tap=True) for part in taps.split(","))
    paths = [each.path.casefold() for each in entities]
    for path in paths:
        if paths.count(path) > 1:
            raise ConfigurationError(f"entity {path!r} is given twice: name each queue and subscription once")
    return entities


def paths_by_entity(entities: Iterable[ReceivingEntity]) -> dict[str, tuple[str, ...]]:
    """Return the receiving paths of each entity, without taps, by its lower-case path."""
    paths: dict[str, tuple[str, ...]] = {}
    for each in entities:
        if each.tap:
            continue
        paths[each.entity.casefold()] = (*paths.get(each.entity.casefold(), ()), each.path)
    return paths
