"""The configuration file: namespaces and their entities, in the shape of Microsoft's emulator.

``UserConfig.Namespaces[]`` holds ``Queues[]`` and ``Topics[]``, topics hold ``Subscriptions[]`` and these
``Rules[]``. Unlike the original, a file may describe several namespaces, each with ``DeliverPings``, a ``Tier`` and
``Throttling``, and may set every property of the administration API, within the ranges and with the defaults of the
service (the original allows one hour of time to live and ten deliveries). Namespaces, queues and topics may have
``AuthorizationRules[]``: ``KeyName``, ``Rights[]``, and ``PrimaryKey`` and ``SecondaryKey``, which are generated when
they are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, TypeVar

from servicebus_emulator.admin.atom.fields import property_name, property_types
from servicebus_emulator.config_values import ConfigError, ConfigValue, parse_document, read_file
from servicebus_emulator.engine.model.access_policy import ROOT_POLICY, check_policy
from servicebus_emulator.engine.model.descriptions import (
    AccessRight,
    AuthorizationRule,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.entity_names import NAMESPACE_NAMES, DescriptionError, is_namespace_name
from servicebus_emulator.engine.model.rule_descriptions import (
    DEFAULT_RULE,
    CorrelationFilter,
    RuleDescription,
    RuleFilter,
    SqlAction,
    SqlFilter,
)
from servicebus_emulator.engine.namespace.tiers import Tier, check_tier
from servicebus_emulator.engine.runtime.rule_set import check_rule
from servicebus_emulator.typed_values import READERS

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ConfigError", "NamespaceConfig", "load_config", "parse_config", "read_config", "read_text"]

D = TypeVar("D", QueueDescription, TopicDescription, SubscriptionDescription)

_NOT_IN_FILES: Final = frozenset({"AuthorizationRules"})
_NAMESPACE_MEMBERS: Final = ("Queues", "Topics", "AuthorizationRules", "DeliverPings", "Tier", "Throttling")
_LOGGING_TYPES: Final = ("File", "Console", "File,Console", "Console,File")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceConfig:
    """A namespace and its initial entities.

    :ivar deliver_pings: whether it delivers pings like other messages.
    :ivar tier: what it accepts is limited to that of a tier; None = everything.
    :ivar throttle: whether it takes no more each second than its tier.
    """

    name: str
    queues: tuple[QueueDescription, ...] = ()
    topics: tuple[TopicDescription, ...] = ()
    subscriptions: tuple[SubscriptionDescription, ...] = ()
    access_rules: tuple[AuthorizationRule, ...] = ()
    deliver_pings: bool = False
    tier: Tier | None = None
    throttle: bool = False

    @property
    def root_rule(self) -> AuthorizationRule | None:
        """The namespace's root rule, if the file sets its keys."""
        named = (rule for rule in self.access_rules if str(rule.key_name).casefold() == ROOT_POLICY.casefold())
        return next(named, None)


def load_config(path: Path) -> tuple[NamespaceConfig, ...]:
    """Read a configuration file.

    :param path: the file, JSON in UTF-8.
    :raises ConfigError: when a value is invalid.
    :raises OSError: when the file cannot be read.
    """
    return parse_config(read_text(path))


def read_text(path: Path) -> str:
    """Read the text of a file, with or without the byte order mark that editors on Windows write.

    :raises ConfigError: when it is no text.
    :raises OSError: when the file cannot be read.
    """
    try:
        return read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError("the document", value=f"no text: {error}", allowed="JSON in UTF-8") from error


def parse_config(text: str) -> tuple[NamespaceConfig, ...]:
    """Read the namespaces from the text of a configuration file, in its order.

    :param text: JSON.
    :raises ConfigError: when a value is invalid.
    """
    return read_config(parse_document(text))


def read_config(document: ConfigValue) -> tuple[NamespaceConfig, ...]:
    """Read the namespaces from a parsed configuration file.

    :raises ConfigError: when a value is invalid.
    """
    root = document.members(required=("UserConfig",), optional=("$schema",))
    user = root["UserConfig"].members(required=("Namespaces",), optional=("Logging",))
    if "Logging" in user:
        # The log targets of the original; this emulator logs to standard error.
        user["Logging"].members(required=("Type",))["Type"].one_of(_LOGGING_TYPES)
    namespaces = tuple(_namespace(node) for node in user["Namespaces"].items(least=1))
    _check_unique(user["Namespaces"].items(), names=[namespace.name for namespace in namespaces])
    return namespaces


def _check_unique(nodes: Iterable[ConfigValue], *, names: Sequence[str], member: str = "Name") -> None:
    seen: set[str] = set()
    for node, name in zip(nodes, names, strict=True):
        if name.casefold() in seen:
            raise ConfigError(node.below(member), value=name, allowed="each name once, whatever its case")
        seen.add(name.casefold())


def _namespace(node: ConfigValue) -> NamespaceConfig:
    members = node.members(required=("Name",), optional=_NAMESPACE_MEMBERS)
    tier = Tier(members["Tier"].one_of(Tier)) if "Tier" in members else None
    name = members["Name"].text()
    if not is_namespace_name(name):
        members["Name"].refuse(NAMESPACE_NAMES)
    queues = tuple(_entity(item, kind=QueueDescription) for item in _list(members, "Queues"))
    topics = tuple(
        _entity(item, kind=TopicDescription, optional=("Subscriptions",)) for item in _list(members, "Topics")
    )
    for item, described in _described(members, queues=queues, topics=topics):
        with _located(item):
            check_tier(described, tier=tier)
    entities = [*_list(members, "Queues"), *_list(members, "Topics")]
    _check_unique(entities, names=[each.path for each in queues] + [each.path for each in topics])
    subscriptions = tuple(
        subscription
        for item, topic in zip(_list(members, "Topics"), topics, strict=True)
        for subscription in _subscriptions(item, topic=topic)
    )
    return NamespaceConfig(
        name=name,
        queues=queues,
        topics=topics,
        subscriptions=subscriptions,
        access_rules=_authorization(members),
        deliver_pings="DeliverPings" in members and members["DeliverPings"].boolean(),
        tier=tier,
        throttle="Throttling" in members and members["Throttling"].boolean(),
    )


def _described(
    members: Mapping[str, ConfigValue], *, queues: tuple[QueueDescription, ...], topics: tuple[TopicDescription, ...]
) -> Iterator[tuple[ConfigValue, QueueDescription | TopicDescription]]:
    yield from zip(_list(members, "Queues"), queues, strict=True)
    yield from zip(_list(members, "Topics"), topics, strict=True)


def _entity(node: ConfigValue, *, kind: type[D], optional: tuple[str, ...] = ()) -> D:
    members = node.members(required=("Name",), optional=("Properties", "AuthorizationRules", *optional))
    given = {
        "path": members["Name"].text(),
        "authorization_rules": _authorization(members),
        **_properties(members.get("Properties"), kind=kind),
    }
    with _located(node):
        return kind(**given)


def _authorization(members: Mapping[str, ConfigValue]) -> tuple[AuthorizationRule, ...]:
    listed = members.get("AuthorizationRules")
    if listed is None:
        return ()
    rules = tuple(_authorization_rule(item) for item in listed.items())
    _check_unique(listed.items(), names=[str(rule.key_name) for rule in rules], member="KeyName")
    return rules


def _authorization_rule(node: ConfigValue) -> AuthorizationRule:
    members = node.members(required=("KeyName", "Rights"), optional=("PrimaryKey", "SecondaryKey"))
    rule = AuthorizationRule(
        key_name=members["KeyName"].text(),
        rights=tuple(AccessRight(right.one_of(AccessRight)) for right in members["Rights"].items()),
        primary_key=_key(members["PrimaryKey"]) if "PrimaryKey" in members else None,
        secondary_key=_key(members["SecondaryKey"]) if "SecondaryKey" in members else None,
    )
    try:
        check_policy(
            str(rule.key_name), rights=rule.rights, primary_key=rule.primary_key, secondary_key=rule.secondary_key
        )
    except DescriptionError as error:
        raise ConfigError(node.below(error.field), value=error.value, allowed=error.allowed) from error
    return rule


def _key(node: ConfigValue) -> str:
    if not isinstance(node.value, str):
        raise ConfigError(node.path, value=type(node.value).__name__, allowed="a string")
    return node.value


def _subscriptions(node: ConfigValue, *, topic: TopicDescription) -> tuple[SubscriptionDescription, ...]:
    known = ("Properties", "AuthorizationRules", "Subscriptions")
    listed = node.members(required=("Name",), optional=known).get("Subscriptions")
    if listed is None:
        return ()
    subscriptions = tuple(_subscription(item, topic=topic) for item in listed.items())
    _check_unique(listed.items(), names=[subscription.name for subscription in subscriptions])
    return subscriptions


def _subscription(node: ConfigValue, *, topic: TopicDescription) -> SubscriptionDescription:
    members = node.members(required=("Name",), optional=("Properties", "Rules"))
    rules = tuple(_rule(item) for item in _list(members, "Rules"))
    given = {
        "topic_path": topic.path,
        "name": members["Name"].text(),
        "rules": rules if len(rules) > 0 else (DEFAULT_RULE,),
        **_properties(members.get("Properties"), kind=SubscriptionDescription),
    }
    with _located(node):
        return SubscriptionDescription(**given)


def _rule(node: ConfigValue) -> RuleDescription:
    members = node.members(required=("Name", "Properties"))
    name = members["Name"].text()
    properties = members["Properties"].members(
        required=("FilterType",), optional=("SqlFilter", "CorrelationFilter", "Action")
    )
    action = SqlAction(expression=_expression(properties["Action"])) if "Action" in properties else None
    chosen = _filter(members["Properties"], properties=properties)
    with _located(node):
        rule = RuleDescription(name, filter=chosen, action=action)
        check_rule(rule)
    return rule


def _filter(node: ConfigValue, *, properties: Mapping[str, ConfigValue]) -> RuleFilter:
    kind = properties["FilterType"]
    member = f"{kind.one_of(('Sql', 'Correlation'))}Filter"
    described = properties.get(member)
    if described is None:
        raise ConfigError(node.below(member), value="missing", allowed=f"a filter, because FilterType is {kind.value}")
    if kind.value == "Sql":
        return SqlFilter(expression=_expression(described))
    return _correlation(described)


def _expression(node: ConfigValue) -> str:
    return node.members(required=("SqlExpression",))["SqlExpression"].text()


def _correlation(node: ConfigValue) -> CorrelationFilter:
    names = {property_name(part.name): part.name for part in fields(CorrelationFilter)}
    members = node.members(optional=tuple(names))
    if len(members) == 0:
        node.refuse(f"at least one of {', '.join(names)}")
    pairs = members.get("Properties")
    texts = {names[name]: member.text() for name, member in members.items() if name != "Properties"}
    given = () if pairs is None else tuple((name, value.scalar()) for name, value in pairs.entries().items())
    return CorrelationFilter(**texts, properties=given)


def _properties(
    node: ConfigValue | None, *, kind: type[QueueDescription | TopicDescription | SubscriptionDescription]
) -> dict[str, Any]:
    if node is None:
        return {}
    types = {name: entry for name, entry in property_types(kind).items() if name not in _NOT_IN_FILES}
    members = node.members(optional=tuple(types))
    return {types[name][0]: READERS[types[name][1]](member) for name, member in members.items()}


@contextmanager
def _located(node: ConfigValue) -> Iterator[None]:
    """Report an invalid description with its path in the file."""
    try:
        yield
    except DescriptionError as error:
        name = property_name(error.field)
        inner = {"Path": "Name", "TopicPath": "Name", "Name": "Name", "Rules": "Rules"}.get(name, f"Properties.{name}")
        path = node.path if node.path.endswith(".Name") else f"{node.path}.{inner}"
        raise ConfigError(path, value=error.value, allowed=error.allowed) from error


def _list(members: Mapping[str, ConfigValue], name: str) -> tuple[ConfigValue, ...]:
    return members[name].items() if name in members else ()
