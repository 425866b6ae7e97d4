"""What a namespace begins with: the entities and rules of its configuration."""

from __future__ import annotations

import logging

from servicebus_emulator.config import NamespaceConfig
from servicebus_emulator.engine.model.descriptions import (
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.errors import EntityExists, InvalidArgument
from servicebus_emulator.engine.namespace.forwarding import creation_order
from servicebus_emulator.engine.namespace.namespace import Namespace
from servicebus_emulator.logs import event

__all__ = ["create_initial_entities"]

_log = logging.getLogger(__name__)


def create_initial_entities(config: NamespaceConfig, *, namespace: Namespace) -> None:
    """Create the entities and the shared access rules of a configuration.

    What there is already is kept as it is. The root rule is not among them: it has its keys from the start.

    :raises InvalidArgument: when an entity forwards to what does not exist.
    """
    described = creation_order([*config.queues, *config.topics, *config.subscriptions])
    kept = 0
    for description in described:
        try:
            namespace.create(_completed(description, namespace=namespace))
        except EntityExists:
            kept += 1
        except InvalidArgument as error:
            raise InvalidArgument(f"the configuration's {_place(description)} cannot be: {error}") from error
    known = {rule.name.casefold() for rule in namespace.access_policies.list()}
    for rule in config.access_rules:
        name = str(rule.key_name)
        if name.casefold() not in known:
            namespace.access_policies.put(
                name, rights=rule.rights, primary_key=rule.primary_key, secondary_key=rule.secondary_key
            )
    created = len(described) - kept
    about = event("configured", namespace=namespace.name, created=created, kept=kept)
    _log.info("namespace %s: %d entities created, %d kept as they were", namespace.name, created, kept, extra=about)


def _place(description: Description) -> str:
    if isinstance(description, SubscriptionDescription):
        return f"subscription {description.name!r} of topic {description.topic_path!r}"
    return f"{'queue' if isinstance(description, QueueDescription) else 'topic'} {description.path!r}"


def _completed(description: Description, *, namespace: Namespace) -> Description:
    match description:
        case QueueDescription():
            return namespace.access_policies.complete(description)
        case TopicDescription():
            return namespace.access_policies.complete(description)
        case SubscriptionDescription():
            return description
