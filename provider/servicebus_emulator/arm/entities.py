"""Queues, topics, subscriptions and rules: listed, shown, put and deleted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from servicebus_emulator.admin.reading import runtime_of
from servicebus_emulator.arm.addresses import entity_of, segment_of
from servicebus_emulator.arm.calls import Answer, Call
from servicebus_emulator.arm.descriptions import described, properties_of
from servicebus_emulator.arm.errors import ArmError
from servicebus_emulator.arm.rules import described_rule, rule_properties_of
from servicebus_emulator.arm.values import Value
from servicebus_emulator.engine.descriptions import (
    Description,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.errors import EntityNotFound
from servicebus_emulator.engine.namespace import Namespace

__all__ = ["ENTITY_ACTIONS", "EntityAction", "found", "properties_in"]

EntityAction = Callable[[Namespace, Call], Answer]

T = TypeVar("T")
D = TypeVar("D", QueueDescription, TopicDescription)

_RESOURCE: Final = ("id", "name", "type", "location", "systemData")

_log = logging.getLogger(__name__)


def properties_in(call: Call) -> Value | None:
    """Return the ``properties`` of the resource in a request's body; None = it has none.

    :raises ArmError: when the body is no resource.
    """
    return call.document.members("properties", *_RESOURCE).get("properties")


def found(get: Callable[[], T]) -> T | None:
    """Return what `get` finds; None = there is none."""
    try:
        return get()
    except EntityNotFound:
        return None


# Queues


def _list_queues(namespace: Namespace, call: Call) -> Answer:
    return call.list(namespace.list_queues(), show=lambda each: _shown(namespace, each, call=call))


def _get_queue(namespace: Namespace, call: Call) -> Answer:
    return Answer(200, _shown(namespace, namespace.get_queue(_path(call)), call=call))


def _put_queue(namespace: Namespace, call: Call) -> Answer:
    path = _path(call)
    current = found(lambda: namespace.get_queue(path))
    wanted = _wanted(call, kind=QueueDescription, path=path, current=current)
    put = namespace.create_queue if current is None else namespace.update_queue
    return _put(namespace, put(wanted), call=call, new=current is None)


def _delete_queue(namespace: Namespace, call: Call) -> Answer:
    return _deleted(namespace, f"queue {_path(call)!r}", delete=lambda: namespace.delete_queue(_path(call)))


# Topics


def _list_topics(namespace: Namespace, call: Call) -> Answer:
    return call.list(namespace.list_topics(), show=lambda each: _shown(namespace, each, call=call))


def _get_topic(namespace: Namespace, call: Call) -> Answer:
    return Answer(200, _shown(namespace, namespace.get_topic(_path(call)), call=call))


def _put_topic(namespace: Namespace, call: Call) -> Answer:
    path = _path(call)
    current = found(lambda: namespace.get_topic(path))
    wanted = _wanted(call, kind=TopicDescription, path=path, current=current)
    put = namespace.create_topic if current is None else namespace.update_topic
    return _put(namespace, put(wanted), call=call, new=current is None)


def _delete_topic(namespace: Namespace, call: Call) -> Answer:
    return _deleted(namespace, f"topic {_path(call)!r}", delete=lambda: namespace.delete_topic(_path(call)))


# Subscriptions


def _list_subscriptions(namespace: Namespace, call: Call) -> Answer:
    listed = namespace.list_subscriptions(_topic(namespace, call).path)
    return call.list(listed, show=lambda each: _shown(namespace, each, call=call))


def _get_subscription(namespace: Namespace, call: Call) -> Answer:
    return Answer(200, _shown(namespace, _subscription(namespace, call), call=call))


def _put_subscription(namespace: Namespace, call: Call) -> Answer:
    topic, name = _topic(namespace, call).path, call.address.names[2]
    current = found(lambda: namespace.get_subscription(topic, name))
    identity = {"topic_path": topic, "name": name if current is None else current.name}
    wanted = described(properties_in(call), kind=SubscriptionDescription, identity=identity, current=current)
    put = namespace.create_subscription(wanted) if current is None else namespace.update_subscription(wanted)
    return _put(namespace, put, call=call, new=current is None)


def _delete_subscription(namespace: Namespace, call: Call) -> Answer:
    topic, name = _topic(namespace, call).path, call.address.names[2]
    return _deleted(
        namespace, f"subscription {name!r} of {topic!r}", delete=lambda: namespace.delete_subscription(topic, name)
    )


# Rules


def _list_rules(namespace: Namespace, call: Call) -> Answer:
    subscription = _parent(lambda: _subscription(namespace, call))
    return call.list(subscription.rules, show=lambda each: _shown_rule(each, of=subscription, call=call))


def _get_rule(namespace: Namespace, call: Call) -> Answer:
    subscription = _parent(lambda: _subscription(namespace, call))
    return Answer(200, _shown_rule(_rule(subscription, name=call.address.names[3]), of=subscription, call=call))


def _put_rule(namespace: Namespace, call: Call) -> Answer:
    subscription, name = _parent(lambda: _subscription(namespace, call)), call.address.names[3]
    current = found(lambda: _rule(subscription, name=name))
    wanted = described_rule(properties_in(call), name=name if current is None else current.name)
    if current is not None and rule_properties_of(wanted) == rule_properties_of(current):
        # What the interface cannot show of it (parameters, types of values) stays.
        wanted = current
    change = namespace.add_rule if current is None else namespace.update_rule
    change(subscription.topic_path, subscription.name, wanted)
    _log.info("namespace %s: put rule %r of %s", namespace.name, wanted.name, subscription.path)
    return Answer(200, _shown_rule(wanted, of=subscription, call=call))


def _delete_rule(namespace: Namespace, call: Call) -> Answer:
    subscription, name = _parent(lambda: _subscription(namespace, call)), call.address.names[3]
    return _deleted(
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
"""What can be done, by the types below the namespace, by whether all are meant, and by method."""


# Steps


def _path(call: Call) -> str:
    return entity_of(call.address.names[1])


def _wanted(call: Call, *, kind: type[D], path: str, current: D | None) -> D:
    """Return what a queue or topic is to become; its path stays spelt as it was created."""
    identity = {"path": path if current is None else current.path}
    return described(properties_in(call), kind=kind, identity=identity, current=current)


def _parent(get: Callable[[], T]) -> T:
    try:
        return get()
    except EntityNotFound as error:
        raise ArmError(404, code="ParentResourceNotFound", message=str(error)) from error


def _topic(namespace: Namespace, call: Call) -> TopicDescription:
    return _parent(lambda: namespace.get_topic(_path(call)))


def _subscription(namespace: Namespace, call: Call) -> SubscriptionDescription:
    return namespace.get_subscription(_topic(namespace, call).path, call.address.names[2])


def _rule(subscription: SubscriptionDescription, *, name: str) -> RuleDescription:
    for rule in subscription.rules:
        if rule.name.casefold() == name.casefold():
            return rule
    raise EntityNotFound(f"subscription {subscription.path!r} has no rule {name!r}; create it first")


def _put(namespace: Namespace, description: Description, *, call: Call, new: bool) -> Answer:
    _log.info("namespace %s: %s %s", namespace.name, "created" if new else "updated", description.path)
    return Answer(200, _shown(namespace, description, call=call))


def _deleted(namespace: Namespace, label: str, *, delete: Callable[[], None]) -> Answer:
    try:
        delete()
    except EntityNotFound:
        return Answer(204)
    _log.info("namespace %s: deleted %s", namespace.name, label)
    return Answer(200)


def _shown(namespace: Namespace, description: Description, *, call: Call) -> dict[str, object]:
    properties = properties_of(description, runtime=runtime_of(namespace, description))
    names: tuple[str, ...]
    if isinstance(description, SubscriptionDescription):
        names = (namespace.name, segment_of(description.topic_path), description.name)
    else:
        names = (namespace.name, segment_of(description.path))
    return {**call.identify(*names), "properties": properties}


def _shown_rule(rule: RuleDescription, *, of: SubscriptionDescription, call: Call) -> dict[str, object]:
    names = (call.address.names[0], segment_of(of.topic_path), of.name, rule.name)
    return {**call.identify(*names), "properties": rule_properties_of(rule)}
