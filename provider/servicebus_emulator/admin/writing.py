"""Entities created, updated and deleted as a client asks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from servicebus_emulator.admin.atom import content_of
from servicebus_emulator.admin.fields import decode
from servicebus_emulator.admin.markup import SERVICE_BUS, parse
from servicebus_emulator.admin.resources import Entity, Rule, Subscription
from servicebus_emulator.admin.rules import decode_rule
from servicebus_emulator.engine.descriptions import (
    DEFAULT_RULE,
    DEFAULT_RULE_NAME,
    Description,
    DescriptionError,
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.logs import event

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from servicebus_emulator.engine.namespace import Namespace

__all__ = ["Writer"]

_FIXED_AT_CREATION: Final = ("requires_session", "requires_duplicate_detection", "enable_partitioning")

_log = logging.getLogger(__name__)


class Writer:
    """Changes a namespace; every change leaves one log line.

    :param namespace: the namespace that is changed.
    """

    def __init__(self, namespace: Namespace) -> None:
        self._namespace: Final = namespace
        self._rules: Final = namespace.access_rules

    def create(self, resource: Entity | Subscription, *, document: bytes, version: str) -> Description:
        """Create what a document describes, and return it with the service's defaults filled in.

        :param version: the api-version in which the document is written.
        :raises MarkupError: when the document is no Atom entry.
        :raises DescriptionError: naming the property, its value and what is allowed.
        :raises BrokerError: what the namespace refuses: a path that is taken, a topic that is missing.
        """
        element = content_of(parse(document))
        created: Description
        match resource:
            case Subscription(topic, name):
                _expect(element, SubscriptionDescription)
                rules = (_default_rule(element),)
                given = {"topic_path": self._namespace.get_topic(topic).path, "name": name, "rules": rules}
                subscription = decode(element, kind=SubscriptionDescription, given=given, version=version)
                created = self._namespace.create_subscription(subscription)
            case Entity(path) if _expect(element, QueueDescription, TopicDescription) is QueueDescription:
                created = self._namespace.create_queue(
                    self._rules.completed(decode(element, kind=QueueDescription, given={"path": path}, version=version))
                )
            case Entity(path):
                created = self._namespace.create_topic(
                    self._rules.completed(decode(element, kind=TopicDescription, given={"path": path}, version=version))
                )
        self._log_change("created", _label(created), entity=created.path)
        return created

    def update(self, resource: Entity | Subscription, *, document: bytes, version: str) -> Description:
        """Describe an entity anew, and return it.

        A property that the document leaves out returns to its default, as forwarding must to be ended;
        only what is fixed at creation, and the rules of a subscription, stay.

        :param version: the api-version in which the document is written.
        :raises MarkupError: when the document is no Atom entry.
        :raises DescriptionError: naming the property, its value and what is allowed.
        :raises EntityNotFound: when the entity does not exist.
        :raises InvalidArgument: when what is fixed at creation differs.
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
                updated = self._namespace.update_queue(
                    self._rules.completed(decode(element, kind=QueueDescription, given=given, version=version))
                )
            case Entity(path):
                described = self._namespace.get_topic(path)
                given = {"path": described.path, **_fixed(described)}
                updated = self._namespace.update_topic(
                    self._rules.completed(decode(element, kind=TopicDescription, given=given, version=version))
                )
        self._log_change("updated", _label(updated), entity=updated.path)
        return updated

    def put_rule(self, resource: Rule, *, document: bytes, update: bool) -> None:
        """Add a rule to a subscription, or describe one anew.

        :param update: whether the rule must exist already.
        :raises MarkupError: when the document is no Atom entry.
        :raises DescriptionError: naming the part, its value and what is allowed.
        :raises BrokerError: when the subscription is missing, or the rule is there, or not there.
        """
        element = content_of(parse(document))
        if element.tag != f"{{{SERVICE_BUS}}}{RuleDescription.__name__}":
            raise DescriptionError("content", value=element.tag, allowed=f"{{{SERVICE_BUS}}}RuleDescription")
        rule = decode_rule(element, name=resource.name)
        change = self._namespace.update_rule if update else self._namespace.add_rule
        change(resource.topic, resource.subscription, rule)
        self._log_rule("updated" if update else "created", resource)

    def delete_rule(self, resource: Rule) -> None:
        """Delete a rule of a subscription.

        :raises EntityNotFound: when the subscription or the rule does not exist.
        """
        self._namespace.remove_rule(resource.topic, resource.subscription, resource.name)
        self._log_rule("deleted", resource)

    def _log_rule(self, what: str, rule: Rule) -> None:
        path = f"{rule.topic}/Subscriptions/{rule.subscription}"
        self._log_change(what, f"rule {rule.name} of {path}", entity=path, rule=rule.name)

    def delete(self, resource: Entity | Subscription) -> None:
        """Delete an entity with all that it holds.

        :raises EntityNotFound: when the entity does not exist.
        """
        doomed: Description
        match resource:
            case Subscription(topic, name):
                doomed = self._namespace.get_subscription(topic, name)
                self._namespace.delete_subscription(topic, name)
            case Entity(path):
                doomed = self._namespace.get_entity(path)
                if isinstance(doomed, QueueDescription):
                    self._namespace.delete_queue(path)
                else:
                    self._namespace.delete_topic(path)
        self._log_change("deleted", _label(doomed), entity=doomed.path)

    def _log_change(self, what: str, of: str, **fields: str) -> None:
        name = self._namespace.name
        _log.info("namespace %s: %s %s", name, what, of, extra=event(what, namespace=name, **fields))


def _label(description: Description) -> str:
    return f"{type(description).__name__.removesuffix('Description').lower()} {description.path}"


def _expect(element: Element, *kinds: type[Description]) -> type[Description]:
    for kind in kinds:
        if element.tag == f"{{{SERVICE_BUS}}}{kind.__name__}":
            return kind
    allowed = " or ".join(f"{{{SERVICE_BUS}}}{kind.__name__}" for kind in kinds)
    raise DescriptionError("content", value=element.tag, allowed=allowed)


def _fixed(current: Description) -> dict[str, Any]:
    return {name: getattr(current, name) for name in _FIXED_AT_CREATION if hasattr(current, name)}


def _default_rule(element: Element) -> RuleDescription:
    """Take the rule that a subscription begins with out of its description."""
    described = element.find(f"{{{SERVICE_BUS}}}DefaultRuleDescription")
    if described is None:
        return DEFAULT_RULE
    element.remove(described)
    return decode_rule(described, name=described.findtext(f"{{{SERVICE_BUS}}}Name", DEFAULT_RULE_NAME))
