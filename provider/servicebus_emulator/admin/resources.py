"""The resources of the administration API and their URLs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import quote, unquote

from servicebus_emulator.engine.model.errors import EntityNotFound


@dataclass(frozen=True, slots=True)
class NamespaceInfo:
    """The namespace itself: ``/$namespaceinfo``."""


@dataclass(frozen=True, slots=True)
class EntityList:
    """All queues or all topics: ``/$Resources/queues``."""

    kind: Literal["queues", "topics"]


@dataclass(frozen=True, slots=True)
class Entity:
    """A queue or a topic; the URL does not say which."""

    path: str


@dataclass(frozen=True, slots=True)
class SubscriptionList:
    """The subscriptions of a topic."""

    topic: str


@dataclass(frozen=True, slots=True)
class Subscription:
    """One subscription."""

    topic: str
    name: str


@dataclass(frozen=True, slots=True)
class RuleList:
    """The rules of a subscription."""

    topic: str
    subscription: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule."""

    topic: str
    subscription: str
    name: str


Resource = NamespaceInfo | EntityList | Entity | SubscriptionList | Subscription | RuleList | Rule

_SUBSCRIPTIONS: Final = "Subscriptions"
_RULES: Final = "Rules"


def resource_at(raw_path: str) -> Resource:
    """Return the resource at the path of a URL.

    A ``/`` of an entity path may be written as it is or as ``%2F``. The segment ``subscriptions`` ends the path of a
    topic: no entity path may contain it (see ``check_entity_path``). Keywords are case-insensitive. The
    JavaScript client appends a ``/`` to the path of a list of rules.

    :param raw_path: the path as received, percent-encoded once.
    :raises EntityNotFound: nothing can be there.
    """
    path = unquote(raw_path).removeprefix("/").removesuffix("/")
    segments = path.split("/")
    words = [segment.casefold() for segment in segments]
    if path.startswith("$"):
        return _service_resource(path)
    if _SUBSCRIPTIONS.casefold() not in words:
        return Entity(path)
    end = words.index(_SUBSCRIPTIONS.casefold())
    topic = "/".join(segments[:end])
    match segments[end + 1 :], words[end + 2 :]:
        case [], _:
            return SubscriptionList(topic)
        case [name], _:
            return Subscription(topic, name)
        case [name, _], [word] if word == _RULES.casefold():
            return RuleList(topic, name)
        case [name, _, rule], [word, _] if word == _RULES.casefold():
            return Rule(topic, name, rule)
        case _:
            raise _nothing_at(path)


def url_path(resource: Resource) -> str:
    """Return the URL path of a resource as the service writes it: the JavaScript client parses names from it."""
    return "/" + "/".join(quote(name, safe="$/") for name in _names(resource))


def _names(resource: Resource) -> list[str]:
    match resource:
        case NamespaceInfo():
            return ["$namespaceinfo"]
        case EntityList(kind):
            return ["$Resources", kind]
        case SubscriptionList(topic):
            return [topic, _SUBSCRIPTIONS]
        case Subscription(topic, name):
            return [topic, _SUBSCRIPTIONS, name]
        case RuleList(topic, subscription):
            return [topic, _SUBSCRIPTIONS, subscription, _RULES]
        case Rule(topic, subscription, name):
            return [topic, _SUBSCRIPTIONS, subscription, _RULES, name]
        case Entity(path):
            return [path]


def _service_resource(path: str) -> Resource:
    match path.casefold():
        case "$namespaceinfo":
            return NamespaceInfo()
        case "$resources/queues":
            return EntityList("queues")
        case "$resources/topics":
            return EntityList("topics")
        case _:
            raise _nothing_at(path)


def _nothing_at(path: str) -> EntityNotFound:
    return EntityNotFound(f"nothing is at {path!r}; allowed: an entity, a subscription or a list")
