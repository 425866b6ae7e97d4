"""Places: where the messages of an entity arrive, as the reconcile job is told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from servicebus_pair.core.errors import ConfigurationError

__all__ = ["Place", "by_entity", "parse_places"]

_SUBSCRIPTIONS: Final = "/subscriptions/"


@dataclass(frozen=True, slots=True)
class Place:
    """A queue or subscription of the primary, and the entity whose messages arrive there.

    :param path: ``flights``, or ``delays/Subscriptions/all``.
    :param entity: what senders send to: the queue itself, or the topic.
    """

    path: str
    entity: str

    @classmethod
    def parse(cls, text: str) -> Place:
        """Read ``path`` or ``path=entity``; the topic of a subscription is part of its path.

        :raises ConfigurationError: a path or an entity is empty.
        """
        path, separator, entity = (part.strip() for part in text.partition("="))
        if not separator:
            entity = path[: path.casefold().find(_SUBSCRIPTIONS)] if _SUBSCRIPTIONS in path.casefold() else path
        if not path or not entity:
            raise ConfigurationError(
                f"entity {text!r} is not a place: allowed are queue, topic/Subscriptions/name and path=entity"
            )
        return cls(path, entity)


def parse_places(text: str) -> tuple[Place, ...]:
    """Read places separated by commas. :raises ConfigurationError: one is wrong, or a path comes twice."""
    places = tuple(Place.parse(part) for part in text.split(","))
    paths = [place.path.casefold() for place in places]
    for path in paths:
        if paths.count(path) > 1:
            raise ConfigurationError(f"entity {path!r} is given twice: name each queue and subscription once")
    return places


def by_entity(places: Iterable[Place]) -> dict[str, tuple[str, ...]]:
    """Answer the paths of each entity's places, by its folded path."""
    paths: dict[str, tuple[str, ...]] = {}
    for place in places:
        paths[place.entity.casefold()] = (*paths.get(place.entity.casefold(), ()), place.path)
    return paths
