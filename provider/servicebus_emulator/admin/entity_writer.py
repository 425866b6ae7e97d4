"""Creates, updates and deletes entities on request."""

from __future__ import annotations

import logging
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

from servicebus_emulator.admin.atom.documents import content_of
from servicebus_emulator.admin.atom.fields import decode
from servicebus_emulator.admin.atom.rules import decode_rule
from servicebus_emulator.admin.atom.xml import SERVICE_BUS, parse
from servicebus_emulator.admin.resources import Entity, Rule, Subscription
from servicebus_emulator.engine.model.descriptions import (
    FIXED_AT_CREATION,
    IDENTITY,
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    entity_label,
)
from servicebus_emulator.engine.model.entity_names import DescriptionError
from servicebus_emulator.engine.model.rule_descriptions import DEFAULT_RULE, DEFAULT_RULE_NAME, RuleDescription
from servicebus_emulator.logs import event

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from servicebus_emulator.engine.namespace.namespace import Namespace

K = TypeVar("K")

_log = logging.getLogger(__name__)


class EntityWriter:
    """Changes the entities of a namespace and logs each change."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace: Final = namespace
        self._policies: Final = namespace.access_policies

    def create(self, resource: Entity | Subscription, *, document: bytes, version: str) -> Description:
        """Create the entity in the document; return it with the service's defaults.

        :param version: the api-version of the document.
        :raises MarkupError: the document is not an Atom entry.
        :raises DescriptionError: a property has a value that is not allowed.
        :raises BrokerError: the path is taken, or the topic is missing.
        """
        element = content_of(parse(document))
        kind: type[Description]
        given: dict[str, Any]
        match resource:
            case Subscription(topic, name):
                kind = _expect(element, SubscriptionDescription)
                rules = (_pop_default_rule(element),)
                given = {"topic_path": self._namespace.get_topic(topic).path, "name": name, "rules": rules}
            case Entity(path):
                kind, given = _expect(element, QueueDescription, TopicDescription), {"path": path}
        description = self._policies.complete(decode(element, kind=kind, given=given, version=version))
        created = self._namespace.create(description)
        self._log_change("created", entity_label(created), entity=created.path)
        return created

    def update(self, resource: Entity | Subscription, *, document: bytes, version: str) -> Description:
        """Replace the description of an entity and return it.

        A property that the document omits returns to its default: this is how forwarding is ended. Only the
        properties fixed at creation and the rules of a subscription are kept.

        :param version: the api-version of the document.
        :raises MarkupError: the document is not an Atom entry.
        :raises DescriptionError: a property has a value that is not allowed.
        :raises EntityNotFound: the entity does not exist.
        :raises InvalidArgument: a property that is fixed at creation differs.
        """
        element = content_of(parse(document))
        kind: type[Description]
        current: Description
        match resource:
            case Subscription(topic, name):
                kind = _expect(element, SubscriptionDescription)
                current = self._namespace.get_subscription(topic, name)
            case Entity(path):
                kind = _expect(element, QueueDescription, TopicDescription)
                get = self._namespace.get_queue if kind is QueueDescription else self._namespace.get_topic
                current = get(path)
        kept = IDENTITY | {"rules", *FIXED_AT_CREATION}
        given = {each.name: getattr(current, each.name) for each in fields(current) if each.name in kept}
        description = decode(element, kind=kind, given=given, version=version)
        updated = self._namespace.update(self._policies.complete(description))
        self._log_change("updated", entity_label(updated), entity=updated.path)
        return updated

    def delete(self, resource: Entity | Subscription) -> None:
        """Delete an entity and its messages.

        :raises EntityNotFound: the entity does not exist.
        """
        path = resource.path if isinstance(resource, Entity) else f"{resource.topic}/Subscriptions/{resource.name}"
        deleted = self._namespace.get_entity(path)
        self._namespace.delete(deleted)
        self._log_change("deleted", entity_label(deleted), entity=deleted.path)

    def put_rule(self, resource: Rule, *, document: bytes, update: bool) -> None:
        """Add a rule to a subscription, or replace one.

        :param update: whether the rule must exist already.
        :raises MarkupError: the document is not an Atom entry.
        :raises DescriptionError: a part has a value that is not allowed.
        :raises BrokerError: the subscription or the rule is missing, or the rule exists already.
        """
        element = content_of(parse(document))
        _expect(element, RuleDescription)
        rule = decode_rule(element, name=resource.name)
        change = self._namespace.update_rule if update else self._namespace.add_rule
        change(resource.topic, resource.subscription, rule)
        self._log_rule_change("updated" if update else "created", resource)

    def delete_rule(self, resource: Rule) -> None:
        """Delete a rule of a subscription.

        :raises EntityNotFound: the subscription or the rule does not exist.
        """
        self._namespace.remove_rule(resource.topic, resource.subscription, resource.name)
        self._log_rule_change("deleted", resource)

    def _log_rule_change(self, action: str, rule: Rule) -> None:
        path = f"{rule.topic}/Subscriptions/{rule.subscription}"
        self._log_change(action, f"rule {rule.name} of {path}", entity=path, rule=rule.name)

    def _log_change(self, action: str, label: str, **fields: str) -> None:
        name = self._namespace.name
        _log.info("namespace %s: %s %s", name, action, label, extra=event(action, namespace=name, **fields))


def _expect(element: Element, *kinds: type[K]) -> type[K]:
    for kind in kinds:
        if element.tag == f"{{{SERVICE_BUS}}}{kind.__name__}":
            return kind
    allowed = " or ".join(f"{{{SERVICE_BUS}}}{kind.__name__}" for kind in kinds)
    raise DescriptionError("content", value=element.tag, allowed=allowed)


def _pop_default_rule(element: Element) -> RuleDescription:
    """Remove the first rule of a subscription from its description and return it."""
    described = element.find(f"{{{SERVICE_BUS}}}DefaultRuleDescription")
    if described is None:
        return DEFAULT_RULE
    element.remove(described)
    return decode_rule(described, name=described.findtext(f"{{{SERVICE_BUS}}}Name", DEFAULT_RULE_NAME))
