"""Creates the entities and shared access policies of a namespace's configuration."""

from __future__ import annotations

import logging

from servicebus_emulator.config import NamespaceConfig
from servicebus_emulator.engine.model.descriptions import entity_label
from servicebus_emulator.engine.model.errors import EntityExists, InvalidArgument
from servicebus_emulator.engine.namespace.forwarding import creation_order
from servicebus_emulator.engine.namespace.namespace import Namespace
from servicebus_emulator.logs import event

_log = logging.getLogger(__name__)


def create_initial_entities(config: NamespaceConfig, *, namespace: Namespace) -> None:
    """Create the missing entities and shared access policies. The root policy always exists already.

    :raises InvalidArgument: when a forwarding target does not exist.
    """
    described = creation_order([*config.queues, *config.topics, *config.subscriptions])
    kept = 0
    for description in described:
        try:
            namespace.create(namespace.access_policies.complete(description))
        except EntityExists:
            kept += 1
        except InvalidArgument as error:
            raise InvalidArgument(
                f"the configuration's {entity_label(description)} cannot be created: {error}"
            ) from error
    known = {rule.name.casefold() for rule in namespace.access_policies.list()}
    for rule in config.access_rules:
        name = str(rule.key_name)
        if name.casefold() not in known:
            namespace.access_policies.put(
                name, rights=rule.rights, primary_key=rule.primary_key, secondary_key=rule.secondary_key
            )
    created = len(described) - kept
    about = event("configured", namespace=namespace.name, created=created, kept=kept)
    _log.info("namespace %s: %d entities created, %d kept", namespace.name, created, kept, extra=about)
