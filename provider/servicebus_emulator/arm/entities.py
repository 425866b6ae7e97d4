"""Actions on queues, topics, subscriptions and rules."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from servicebus_emulator.admin.entity_reader import read_runtime
from servicebus_emulator.arm.addresses import entity_path, path_segment
from servicebus_emulator.arm.descriptions import decode_description, encode_properties
from servicebus_emulator.arm.errors import ArmError
from servicebus_emulator.arm.json_values import JsonValue
from servicebus_emulator.arm.requests import Request, Response
from servicebus_emulator.arm.rules import decode_rule, encode_rule
from servicebus_emulator.engine.model.descriptions import (
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.errors import EntityNotFound
from servicebus_emulator.engine.model.rule_descriptions import RuleDescription
from servicebus_emulator.engine.namespace.namespace import Namespace

__all__ = ["ENTITY_ACTIONS", "EntityAction", "get_or_none", "request_properties"]

EntityAction = Callable[[Namespace, Request], Response]

T = TypeVar("T")
D = TypeVar("D", QueueDescription, TopicDescription)

_MEMBERS: Final = ("id", "name", "type", "location", "systemData")

_log = logging.getLogger(__name__)


def request_properties(request: Request) -> JsonValue | None:
    """Return the ``properties`` in the body of a request; None = it has none.

    :raises ArmError: the body is not a resource.
    """
    return request.document.members("properties", *_MEMBERS).get("properties")


def get_or_none(get: Callable[[], T]) -> T | None:
    """Return the result of `get`; None = the entity does not exist."""
    try:
        return get()
    except EntityNotFound:
        return None


# Queues


def _list_queues(namespace: Namespace, request: Request) -> Response:
    return _list_response(namespace, namespace.list_queues(), request=request)


def _get_queue(namespace: Namespace, request: Request) -> Response:
    return Response(200, _resource(namespace, namespace.get_queue(_path(request)), request=request))


def _put_queue(namespace: Namespace, request: Request) -> Response:
    path = _path(request)
    current = get_or_none(lambda: namespace.get_queue(path))
    description = _decode_entity(request, kind=QueueDescription, path=path, current=current)
    put = namespace.create_queue if current is None else namespace.update_queue
    return _put_response(namespace, put(description), request=request, new=current is None)


def _delete_queue(namespace: Namespace, request: Request) -> Response:
    return _delete(namespace, f"queue {_path(request)!r}", delete=lambda: namespace.delete_queue(_path(request)))


# Topics


def _list_topics(namespace: Namespace, request: Request) -> Response:
    return _list_response(namespace, namespace.list_topics(), request=request)


def _get_topic(namespace: Namespace, request: Request) -> Response:
    return Response(200, _resource(namespace, namespace.get_topic(_path(request)), request=request))


def _put_topic(namespace: Namespace, request: Request) -> Response:
    path = _path(request)
    current = get_or_none(lambda: namespace.get_topic(path))
    description = _decode_entity(request, kind=TopicDescription, path=path, current=current)
    put = namespace.create_topic if current is None else namespace.update_topic
    return _put_response(namespace, put(description), request=request, new=current is None)


def _delete_topic(namespace: Namespace, request: Request) -> Response:
    return _delete(namespace, f"topic {_path(request)!r}", delete=lambda: namespace.delete_topic(_path(request)))


# Subscriptions


def _list_subscriptions(namespace: Namespace, request: Request) -> Response:
    subscriptions = namespace.list_subscriptions(_topic(namespace, request).path)
    return _list_response(namespace, subscriptions, request=request)


def _get_subscription(namespace: Namespace, request: Request) -> Response:
    return Response(200, _resource(namespace, _subscription(namespace, request), request=request))


def _put_subscription(namespace: Namespace, request: Request) -> Response:
    topic, name = _topic(namespace, request).path, request.address.names[2]
    current = get_or_none(lambda: namespace.get_subscription(topic, name))
    identity = {"topic_path": topic, "name": name if current is None else current.name}
    description = decode_description(
        request_properties(request), kind=SubscriptionDescription, identity=identity, current=current
    )
    put = namespace.create_subscription if current is None else namespace.update_subscription
    return _put_response(namespace, put(description), request=request, new=current is None)


def _delete_subscription(namespace: Namespace, request: Request) -> Response:
    topic, name = _topic(namespace, request).path, request.address.names[2]
    return _delete(
        namespace, f"subscription {name!r} of {topic!r}", delete=lambda: namespace.delete_subscription(topic, name)
    )


# Rules


def _list_rules(namespace: Namespace, request: Request) -> Response:
    subscription = _get_parent(lambda: _subscription(namespace, request))
    return request.list_response(
        subscription.rules, encode=lambda rule: _rule_resource(rule, of=subscription, request=request)
    )


def _get_rule(namespace: Namespace, request: Request) -> Response:
    subscription = _get_parent(lambda: _subscription(namespace, request))
    rule = _rule(subscription, name=request.address.names[3])
    return Response(200, _rule_resource(rule, of=subscription, request=request))


def _put_rule(namespace: Namespace, request: Request) -> Response:
    subscription, name = _get_parent(lambda: _subscription(namespace, request)), request.address.names[3]
    current = get_or_none(lambda: _rule(subscription, name=name))
    description = decode_rule(request_properties(request), name=name if current is None else current.name)
    if current is not None and encode_rule(description) == encode_rule(current):
        # Keeps what ARM cannot represent: parameters and types of values.
        description = current
    change = namespace.add_rule if current is None else namespace.update_rule
    change(subscription.topic_path, subscription.name, description)
    _log.info("namespace %s: put rule %r of %s", namespace.name, description.name, subscription.path)
    return Response(200, _rule_resource(description, of=subscription, request=request))


def _delete_rule(namespace: Namespace, request: Request) -> Response:
    subscription, name = _get_parent(lambda: _subscription(namespace, request)), request.address.names[3]
    return _delete(
        namespace,
        f"rule {name!r} of {subscription.path}",
        delete=lambda: namespace.remove_rule(subscription.topic_path, subscription.name, name),
    )


ENTITY_ACTIONS: Final[Mapping[tuple[tuple[str, ...], bool], Mapping[str, EntityAction]]] = {
    (("queues",), True): {"GET": _list_queues},
    (("queues",), False): {"GET": _get_queue, "PUT": _put_queue, "DELETE": _delete_queue},
    (("topics",), True): {"GET": _list_topics},
    (("topics",), False): {"GET": _get_topic, "PUT": _put_topic, "DELETE": _delete_topic},
    (("topics", "subscriptions"), True): {"GET": _list_subscriptions},
    (("topics", "subscriptions"), False): {
        "GET": _get_subscription,
        "PUT": _put_subscription,
        "DELETE": _delete_subscription,
    },
    (("topics", "subscriptions", "rules"), True): {"GET": _list_rules},
    (("topics", "subscriptions", "rules"), False): {"GET": _get_rule, "PUT": _put_rule, "DELETE": _delete_rule},
}
"""Actions by the types below the namespace, by whether the address is a list, and by method."""


# Helpers


def _path(request: Request) -> str:
    return entity_path(request.address.names[1])


def _decode_entity(request: Request, *, kind: type[D], path: str, current: D | None) -> D:
    """Decode a queue or topic; an existing one keeps the spelling of its path."""
    identity = {"path": path if current is None else current.path}
    return decode_description(request_properties(request), kind=kind, identity=identity, current=current)


def _get_parent(get: Callable[[], T]) -> T:
    try:
        return get()
    except EntityNotFound as error:
        raise ArmError(404, code="ParentResourceNotFound", message=str(error)) from error


def _topic(namespace: Namespace, request: Request) -> TopicDescription:
    return _get_parent(lambda: namespace.get_topic(_path(request)))


def _subscription(namespace: Namespace, request: Request) -> SubscriptionDescription:
    return namespace.get_subscription(_topic(namespace, request).path, request.address.names[2])


def _rule(subscription: SubscriptionDescription, *, name: str) -> RuleDescription:
    for rule in subscription.rules:
        if rule.name.casefold() == name.casefold():
            return rule
    raise EntityNotFound(f"subscription {subscription.path!r} has no rule {name!r}; create it first")


def _list_response(namespace: Namespace, listed: Sequence[Description], *, request: Request) -> Response:
    return request.list_response(listed, encode=lambda each: _resource(namespace, each, request=request))


def _put_response(namespace: Namespace, description: Description, *, request: Request, new: bool) -> Response:
    _log.info("namespace %s: %s %s", namespace.name, "created" if new else "updated", description.path)
    return Response(200, _resource(namespace, description, request=request))


def _delete(namespace: Namespace, label: str, *, delete: Callable[[], None]) -> Response:
    try:
        delete()
    except EntityNotFound:
        return Response(204)
    _log.info("namespace %s: deleted %s", namespace.name, label)
    return Response(200)


def _resource(namespace: Namespace, description: Description, *, request: Request) -> dict[str, object]:
    names: tuple[str, ...]
    if isinstance(description, SubscriptionDescription):
        names = (namespace.name, path_segment(description.topic_path), description.name)
    else:
        names = (namespace.name, path_segment(description.path))
    properties = encode_properties(description, runtime=read_runtime(namespace, description))
    return request.resource(*names, properties=properties)


def _rule_resource(rule: RuleDescription, *, of: SubscriptionDescription, request: Request) -> dict[str, object]:
    names = (request.address.names[0], path_segment(of.topic_path), of.name, rule.name)
    return request.resource(*names, properties=encode_rule(rule))
