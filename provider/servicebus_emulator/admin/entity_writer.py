"""Creates, updates and deletes entities on request."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from servicebus_emulator.admin.atom.documents import content_of
from servicebus_emulator.admin.atom.elements import FIXED_AT_CREATION
from servicebus_emulator.admin.atom.fields import decode
from servicebus_emulator.admin.atom.rules import decode_rule
from servicebus_emulator.admin.atom.xml import SERVICE_BUS, parse
from servicebus_emulator.admin.resources import Entity, Rule, Subscription
from servicebus_emulator.engine.model.descriptions import (
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.entity_names import DescriptionError
from servicebus_emulator.engine.model.rule_descriptions import DEFAULT_RULE, DEFAULT_RULE_NAME, RuleDescription
from servicebus_emulator.logs import event

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from servicebus_emulator.engine.namespace.namespace import Namespace

__all__ = ["EntityWriter"]

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
        created: Description
        match resource:
            case Subscription(topic, name):
                _expect(element, SubscriptionDescription)
                rules = (_pop_default_rule(element),)
                given = {"topic_path": self._namespace.get_topic(topic).path, "name": name, "rules": rules}
                subscription = decode(element, kind=SubscriptionDescription, given=given, version=version)
                created = self._namespace.create_subscription(subscription)
            case Entity(path) if _expect(element, QueueDescription, TopicDescription) is QueueDescription:
                queue = decode(element, kind=QueueDescription, given={"path": path}, version=version)
                created = self._namespace.create_queue(self._policies.complete(queue))
            case Entity(path):
                described = decode(element, kind=TopicDescription, given={"path": path}, version=version)
                created = self._namespace.create_topic(self._policies.complete(described))
        self._log_change("created", _label(created), entity=created.path)
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
        updated: Description
        match resource:
            case Subscription(topic, name):
                _expect(element, SubscriptionDescription)
                subscription = self._namespace.get_subscription(topic, name)
                kept = {"topic_path": subscription.topic_path, "name": subscription.name, "rules": subscription.rules}
                given = {**kept, **_fixed(subscription)}
                subscription = decode(element, kind=SubscriptionDescription, given=given, version=version)
                updated = self._namespace.update_subscription(subscription)
            case Entity(path) if _expect(element, QueueDescription, TopicDescription) is QueueDescription:
                queue = self._namespace.get_queue(path)
                given = {"path": queue.path, **_fixed(queue)}
                queue = decode(element, kind=QueueDescription, given=given, version=version)
                updated = self._namespace.update_queue(self._policies.complete(queue))
            case Entity(path):
                described = self._namespace.get_topic(path)
                given = {"path": described.path, **_fixed(described)}
                described = decode(element, kind=TopicDescription, given=given, version=version)
                updated = self._namespace.update_topic(self._policies.complete(described))
        self._log_change("updated", _label(updated), entity=updated.path)
        return updated

    def delete(self, resource: Entity | Subscription) -> None:
        """Delete an entity and its messages.

        :raises EntityNotFound: the entity does not exist.
        """
        deleted: Description
        match resource:
            case Subscription(topic, name):
                deleted = self._namespace.get_subscription(topic, name)
                self._namespace.delete_subscription(topic, name)
            case Entity(path):
                deleted = self._namespace.get_entity(path)
                if isinstance(deleted, QueueDescription):
                    self._namespace.delete_queue(path)
                else:
                    self._namespace.delete_topic(path)
        self._log_change("deleted", _label(deleted), entity=deleted.path)

    def put_rule(self, resource: Rule, *, document: bytes, update: bool) -> None:
        """Add a rule to a subscription, or replace one.

        :param update: whether the rule must exist already.
        :raises MarkupError: the document is not an Atom entry.
        :raises DescriptionError: a part has a value that is not allowed.
        :raises BrokerError: the subscription or the rule is missing, or the rule exists already.
        """
        element = content_of(parse(document))
        if element.tag != f"{{{SERVICE_BUS}}}{RuleDescription.__name__}":
            raise DescriptionError("content", value=element.tag, allowed=f"{{{SERVICE_BUS}}}RuleDescription")
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


def _label(description: Description) -> str:
    return f"{type(description).__name__.removesuffix('Description').lower()} {description.path}"


def _expect(element: Element, *kinds: type[Description]) -> type[Description]:
    for kind in kinds:
        if element.tag == f"{{{SERVICE_BUS}}}{kind.__name__}":
            return kind
    allowed = " or ".join(f"{{{SERVICE_BUS}}}{kind.__name__}" for kind in kinds)
    raise DescriptionError("content", value=element.tag, allowed=allowed)


def _fixed(current: Description) -> dict[str, Any]:
    return {name: getattr(current, name) for name in FIXED_AT_CREATION if hasattr(current, name)}


def _pop_default_rule(element: Element) -> RuleDescription:
    """Remove the first rule of a subscription from its description and return it."""
    described = element.find(f"{{{SERVICE_BUS}}}DefaultRuleDescription")
    if described is None:
        return DEFAULT_RULE
    element.remove(described)
    return decode_rule(described, name=described.findtext(f"{{{SERVICE_BUS}}}Name", DEFAULT_RULE_NAME))
