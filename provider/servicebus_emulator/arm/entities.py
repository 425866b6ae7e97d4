"""Actions on queues, topics, subscriptions and rules."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Final, TypeVar

from servicebus_emulator.admin.entity_reader import read_runtime
from servicebus_emulator.arm.addresses import entity_path, path_segment
from servicebus_emulator.arm.descriptions import decode_description, encode_properties
from servicebus_emulator.arm.errors import ArmError
from servicebus_emulator.arm.json_values import JsonValue
from servicebus_emulator.arm.requests import Request, Response
from servicebus_emulator.arm.rules import decode_rule, encode_rule
from servicebus_emulator.engine.model.descriptions import (
    IDENTITY,
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    entity_label,
)
from servicebus_emulator.engine.model.errors import EntityNotFound
from servicebus_emulator.engine.model.rule_descriptions import RuleDescription
from servicebus_emulator.engine.namespace.namespace import Namespace

EntityAction = Callable[[Namespace, Request], Response]

T = TypeVar("T")

_SUBSCRIPTIONS: Final = ("topics", "subscriptions")
_KINDS: Final[Mapping[tuple[str, ...], type[Description]]] = {
    ("queues",): QueueDescription,
    ("topics",): TopicDescription,
    _SUBSCRIPTIONS: SubscriptionDescription,
}
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


# Queues, topics and subscriptions


def _list(namespace: Namespace, request: Request) -> Response:
    listed = _listed(namespace, request)
    return request.list_response(listed, encode=lambda each: _resource(namespace, each, request=request))


def _listed(namespace: Namespace, request: Request) -> Sequence[Description]:
    match request.address.types[1:]:
        case ("queues",):
            return namespace.list_queues()
        case ("topics",):
            return namespace.list_topics()
        case _:
            return namespace.list_subscriptions(_topic(namespace, request).path)


def _get(namespace: Namespace, request: Request) -> Response:
    return Response(200, _resource(namespace, _find(namespace, request), request=request))


def _put(namespace: Namespace, request: Request) -> Response:
    current = get_or_none(lambda: _find(namespace, request))
    if current is not None:
        # An existing entity keeps the spelling of its path.
        identity = {each.name: getattr(current, each.name) for each in fields(current) if each.name in IDENTITY}
    elif request.address.types[1:] == _SUBSCRIPTIONS:
        identity = {"topic_path": _topic(namespace, request).path, "name": request.address.names[2]}
    else:
        identity = {"path": _path(request)}
    description = decode_description(
        request_properties(request), kind=_KINDS[request.address.types[1:]], identity=identity, current=current
    )
    put = namespace.create if current is None else namespace.update
    stored = put(description)
    _log.info("namespace %s: %s %s", namespace.name, "created" if current is None else "updated", stored.path)
    return Response(200, _resource(namespace, stored, request=request))


def _delete(namespace: Namespace, request: Request) -> Response:
    current = get_or_none(lambda: _find(namespace, request))
    if current is None:
        return Response(204)
    namespace.delete(current)
    _log.info("namespace %s: deleted %s", namespace.name, entity_label(current))
    return Response(200)


# Rules


def _list_rules(namespace: Namespace, request: Request) -> Response:
    subscription = _subscription_of_rule(namespace, request)
    return request.list_response(
        subscription.rules, encode=lambda rule: _rule_resource(rule, of=subscription, request=request)
    )


def _get_rule(namespace: Namespace, request: Request) -> Response:
    subscription, name = _subscription_of_rule(namespace, request), request.address.names[3]
    rule = subscription.find_rule(name)
    if rule is None:
        raise EntityNotFound(f"subscription {subscription.path!r} has no rule {name!r}; create it first")
    return Response(200, _rule_resource(rule, of=subscription, request=request))


def _put_rule(namespace: Namespace, request: Request) -> Response:
    subscription, name = _subscription_of_rule(namespace, request), request.address.names[3]
    current = subscription.find_rule(name)
    description = decode_rule(request_properties(request), name=name if current is None else current.name)
    if current is not None and encode_rule(description) == encode_rule(current):
        # Keeps what ARM cannot represent: parameters and types of values.
        description = current
    change = namespace.add_rule if current is None else namespace.update_rule
    change(subscription.topic_path, subscription.name, description)
    _log.info("namespace %s: put rule %r of %s", namespace.name, description.name, subscription.path)
    return Response(200, _rule_resource(description, of=subscription, request=request))


def _delete_rule(namespace: Namespace, request: Request) -> Response:
    subscription, name = _subscription_of_rule(namespace, request), request.address.names[3]
    if subscription.find_rule(name) is None:
        return Response(204)
    namespace.remove_rule(subscription.topic_path, subscription.name, name)
    _log.info("namespace %s: deleted rule %r of %s", namespace.name, name, subscription.path)
    return Response(200)


ENTITY_ACTIONS: Final[Mapping[tuple[tuple[str, ...], bool], Mapping[str, EntityAction]]] = {
    **{(types, True): {"GET": _list} for types in _KINDS},
    **{(types, False): {"GET": _get, "PUT": _put, "DELETE": _delete} for types in _KINDS},
    ((*_SUBSCRIPTIONS, "rules"), True): {"GET": _list_rules},
    ((*_SUBSCRIPTIONS, "rules"), False): {"GET": _get_rule, "PUT": _put_rule, "DELETE": _delete_rule},
}
"""Actions by the types below the namespace, by whether the address is a list, and by method."""


# Helpers


def _path(request: Request) -> str:
    return entity_path(request.address.names[1])


def _get_parent(get: Callable[[], T]) -> T:
    try:
        return get()
    except EntityNotFound as error:
        raise ArmError(404, str(error), code="ParentResourceNotFound") from error


def _topic(namespace: Namespace, request: Request) -> TopicDescription:
    return _get_parent(lambda: namespace.get_topic(_path(request)))


def _subscription(namespace: Namespace, request: Request) -> SubscriptionDescription:
    return namespace.get_subscription(_topic(namespace, request).path, request.address.names[2])


def _subscription_of_rule(namespace: Namespace, request: Request) -> SubscriptionDescription:
    return _get_parent(lambda: _subscription(namespace, request))


def _find(namespace: Namespace, request: Request) -> Description:
    match request.address.types[1:]:
        case ("queues",):
            return namespace.get_queue(_path(request))
        case ("topics",):
            return namespace.get_topic(_path(request))
        case _:
            return _subscription(namespace, request)


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
