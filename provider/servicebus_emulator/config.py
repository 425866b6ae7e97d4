"""The configuration file: namespaces and their entities, in the shape of Microsoft's emulator.

``UserConfig.Namespaces[]`` holds ``Queues[]`` and ``Topics[]``, topics hold ``Subscriptions[]`` and these
``Rules[]``. Beyond the original there may be several namespaces, each of which may say ``DeliverPings``, every
property that the administration API can set is known, and the service's own ranges and defaults hold (the
original allows one hour of time to live and ten deliveries). Namespaces, queues and topics may have
``AuthorizationRules[]``: ``KeyName``, ``Rights[]``, and ``PrimaryKey`` and ``SecondaryKey``, which are made when
they are left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from servicebus_emulator.admin.atom.fields import property_name, property_types
from servicebus_emulator.engine.model.access_policy import ROOT_POLICY, check_policy
from servicebus_emulator.engine.model.descriptions import (
    AccessRight,
    AuthorizationRule,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.entity_names import NOT_IN_XML, DescriptionError, check_name
from servicebus_emulator.engine.model.rule_descriptions import (
    DEFAULT_RULE,
    CorrelationFilter,
    FilterValue,
    RuleDescription,
    RuleFilter,
    SqlAction,
    SqlFilter,
)
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_emulator.engine.runtime.rule_set import check_rule

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["ConfigError", "NamespaceConfig", "load_config", "parse_config"]

D = TypeVar("D", QueueDescription, TopicDescription, SubscriptionDescription)
T = TypeVar("T")

_NOT_IN_FILES: Final = frozenset({"AuthorizationRules"})
_LOGGING_TYPES: Final = ("File", "Console", "File,Console", "Console,File")

_SECRET: Final = re.compile("key|secret", re.IGNORECASE)
_LONGEST_SHOWN: Final = 100


class ConfigError(ValueError):
    """The configuration file holds a value that is not allowed.

    :ivar path: where in the file, such as ``UserConfig.Namespaces[0].Queues[1].Name``.
    :ivar value: the refused value, without keys and secrets that are in it.
    :ivar allowed: what is allowed instead.
    """

    def __init__(self, path: str, *, value: object, allowed: str) -> None:
        shown = _hidden(value)
        super().__init__(f"{path} is {_short(shown)}; allowed: {allowed}")
        self.path = path
        self.value = shown
        self.allowed = allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceConfig:
    """A namespace and the entities that it begins with.

    :ivar deliver_pings: whether it delivers pings like any other message.
    """

    name: str
    queues: tuple[QueueDescription, ...] = ()
    topics: tuple[TopicDescription, ...] = ()
    subscriptions: tuple[SubscriptionDescription, ...] = ()
    access_rules: tuple[AuthorizationRule, ...] = ()
    deliver_pings: bool = False

    @property
    def root_rule(self) -> AuthorizationRule | None:
        """The namespace's root rule, if the file sets its keys."""
        named = (rule for rule in self.access_rules if str(rule.key_name).casefold() == ROOT_POLICY.casefold())
        return next(named, None)


def load_config(path: Path) -> tuple[NamespaceConfig, ...]:
    """Read a configuration file.

    :param path: the file, JSON in UTF-8.
    :raises ConfigError: naming the place in the file, the value and what is allowed.
    :raises OSError: when the file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError("the document", value=f"no text: {error}", allowed="JSON in UTF-8") from error
    return parse_config(text)


def parse_config(text: str) -> tuple[NamespaceConfig, ...]:
    """Read the namespaces from the text of a configuration file, in its order.

    :param text: JSON.
    :raises ConfigError: naming the place in the file, the value and what is allowed.
    """
    try:
        document = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(place, value=error.msg, allowed="a JSON document") from error
    root = _Node("", document).members(required=("UserConfig",), optional=("$schema",))
    user = root["UserConfig"].members(required=("Namespaces",), optional=("Logging",))
    _check_logging(user.get("Logging"))
    namespaces = tuple(_namespace(node) for node in user["Namespaces"].items(least=1))
    _check_unique(user["Namespaces"], names=[namespace.name for namespace in namespaces])
    return namespaces


class _Node:
    """A value of the file, and where it stands."""

    def __init__(self, path: str, value: object) -> None:
        self.path: Final = path
        self.value: Final = value

    def refuse(self, allowed: str) -> NoReturn:
        raise ConfigError("the document" if self.path == "" else self.path, value=self.value, allowed=allowed)

    def members(self, *, required: tuple[str, ...] = (), optional: tuple[str, ...] = ()) -> Mapping[str, _Node]:
        known = (*required, *optional)
        nodes = {name: _Node(self.below(name), value) for name, value in self.object().items()}
        for name, node in nodes.items():
            if name not in known:
                value = _masked({name: node.value})[name]
                raise ConfigError(node.path, value=value, allowed=f"only {', '.join(known)}")
        for name in required:
            if name not in nodes:
                raise ConfigError(self.below(name), value="missing", allowed="a value; it is required")
        return nodes

    def below(self, name: str) -> str:
        return name if self.path == "" else f"{self.path}.{name}"

    def object(self) -> dict[str, object]:
        if not isinstance(self.value, dict):
            self.refuse("an object")
        return self.value

    def items(self, *, least: int = 0) -> Iterator[_Node]:
        if not isinstance(self.value, list) or len(self.value) < least:
            self.refuse("a list" if least == 0 else f"a list of at least {least}")
        return (_Node(f"{self.path}[{index}]", value) for index, value in enumerate(self.value))

    def text(self) -> str:
        if not isinstance(self.value, str):
            self.refuse("a string")
        if NOT_IN_XML.search(self.value) is not None:
            self.refuse("a string of characters that XML can carry, as the administration API must")
        return self.value


def _short(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _LONGEST_SHOWN else f"{shown[:_LONGEST_SHOWN]}..."


def _masked(members: Mapping[str, object]) -> dict[str, object]:
    """Hide whatever may be a key or a secret, however its name is spelt."""
    return {name: "***" if _SECRET.search(name) else _hidden(value) for name, value in members.items()}


def _hidden(value: object) -> object:
    if isinstance(value, list):
        return [_hidden(each) for each in value]
    return _masked(value) if isinstance(value, dict) else value


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"member {twice!r}", value="given twice in one object", allowed="each member once")
    return members


def _refuse_constant(constant: str) -> NoReturn:
    raise ConfigError("a number", value=constant, allowed="a number that JSON knows")


def _check_logging(node: _Node | None) -> None:
    """Accept the original's choice of log targets; this emulator logs to standard error."""
    if node is not None:
        kind = node.members(required=("Type",))["Type"]
        if kind.value not in _LOGGING_TYPES:
            kind.refuse(", ".join(_LOGGING_TYPES))


def _check_unique(node: _Node, *, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name.casefold() in seen:
            raise ConfigError(node.path, value=name, allowed="each name once, whatever its case")
        seen.add(name.casefold())


def _namespace(node: _Node) -> NamespaceConfig:
    members = node.members(required=("Name",), optional=("Queues", "Topics", "AuthorizationRules", "DeliverPings"))
    name = members["Name"].text()
    _described(members["Name"], make=lambda: check_name("name", value=name))
    queues = tuple(_entity(item, kind=QueueDescription) for item in _list(members, "Queues"))
    topics = tuple(
        _entity(item, kind=TopicDescription, optional=("Subscriptions",)) for item in _list(members, "Topics")
    )
    _check_unique(node, names=[queue.path for queue in queues] + [topic.path for topic in topics])
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
        deliver_pings="DeliverPings" in members and _boolean(members["DeliverPings"]),
    )


def _entity(node: _Node, *, kind: type[D], optional: tuple[str, ...] = ()) -> D:
    members = node.members(required=("Name",), optional=("Properties", "AuthorizationRules", *optional))
    given = {
        "path": members["Name"].text(),
        "authorization_rules": _authorization(members),
        **_properties(members.get("Properties"), kind=kind),
    }
    return _described(node, make=lambda: kind(**given))


def _authorization(members: Mapping[str, _Node]) -> tuple[AuthorizationRule, ...]:
    listed = members.get("AuthorizationRules")
    if listed is None:
        return ()
    rules = tuple(_authorization_rule(item) for item in listed.items())
    _check_unique(listed, names=[str(rule.key_name) for rule in rules])
    return rules


def _authorization_rule(node: _Node) -> AuthorizationRule:
    members = node.members(required=("KeyName", "Rights"), optional=("PrimaryKey", "SecondaryKey"))
    known = [right.value for right in AccessRight]
    rights = [right if right.value in known else right.refuse(", ".join(known)) for right in members["Rights"].items()]
    rule = AuthorizationRule(
        key_name=members["KeyName"].text(),
        rights=tuple(AccessRight(right.text()) for right in rights),
        primary_key=_key(members["PrimaryKey"]) if "PrimaryKey" in members else None,
        secondary_key=_key(members["SecondaryKey"]) if "SecondaryKey" in members else None,
    )
    keys = {"primary_key": rule.primary_key, "secondary_key": rule.secondary_key}
    try:
        check_policy(str(rule.key_name), rights=rule.rights, **keys)
    except DescriptionError as error:
        raise ConfigError(node.below(error.field), value=error.value, allowed=error.allowed) from error
    return rule


def _key(node: _Node) -> str:
    if not isinstance(node.value, str):
        raise ConfigError(node.path, value=type(node.value).__name__, allowed="a string")
    return node.value


def _subscriptions(node: _Node, *, topic: TopicDescription) -> tuple[SubscriptionDescription, ...]:
    known = ("Properties", "AuthorizationRules", "Subscriptions")
    listed = node.members(required=("Name",), optional=known).get("Subscriptions")
    if listed is None:
        return ()
    subscriptions = tuple(_subscription(item, topic=topic) for item in listed.items())
    _check_unique(listed, names=[subscription.name for subscription in subscriptions])
    return subscriptions


def _subscription(node: _Node, *, topic: TopicDescription) -> SubscriptionDescription:
    members = node.members(required=("Name",), optional=("Properties", "Rules"))
    rules = tuple(_rule(item) for item in _list(members, "Rules"))
    given = {
        "topic_path": topic.path,
        "name": members["Name"].text(),
        "rules": rules if len(rules) > 0 else (DEFAULT_RULE,),
        **_properties(members.get("Properties"), kind=SubscriptionDescription),
    }
    return _described(node, make=lambda: SubscriptionDescription(**given))


def _rule(node: _Node) -> RuleDescription:
    members = node.members(required=("Name", "Properties"))
    name = members["Name"].text()
    properties = members["Properties"].members(
        required=("FilterType",), optional=("SqlFilter", "CorrelationFilter", "Action")
    )
    action = properties.get("Action")
    expression = None if action is None else _expression(action)
    chosen = _filter(members["Properties"], properties=properties)
    return _described(
        node,
        make=lambda: _checked(
            RuleDescription(
                name, filter=chosen, action=None if expression is None else SqlAction(expression=expression)
            )
        ),
    )


def _checked(rule: RuleDescription) -> RuleDescription:
    check_rule(rule)
    return rule


def _filter(node: _Node, *, properties: Mapping[str, _Node]) -> RuleFilter:
    kind = properties["FilterType"]
    if kind.value not in ("Sql", "Correlation"):
        kind.refuse("Sql, Correlation")
    member = f"{kind.value}Filter"
    described = properties.get(member)
    if described is None:
        raise ConfigError(node.below(member), value="missing", allowed=f"a filter, because FilterType is {kind.value}")
    if kind.value == "Sql":
        return SqlFilter(expression=_expression(described))
    return _correlation(described)


def _expression(node: _Node) -> str:
    return node.members(required=("SqlExpression",))["SqlExpression"].text()


def _correlation(node: _Node) -> CorrelationFilter:
    names = {property_name(part.name): part.name for part in fields(CorrelationFilter)}
    members = node.members(optional=tuple(names))
    if len(members) == 0:
        node.refuse(f"at least one of {', '.join(names)}")
    pairs = members.get("Properties")
    texts = {names[name]: member.text() for name, member in members.items() if name != "Properties"}
    return CorrelationFilter(**texts, properties=() if pairs is None else tuple(_pairs(pairs)))


def _pairs(node: _Node) -> Iterator[tuple[str, FilterValue]]:
    for name, value in node.object().items():
        if not isinstance(value, str | int | float | bool):
            raise ConfigError(node.below(name), value=value, allowed="a string, a number, true, false")
        yield name, value


def _properties(
    node: _Node | None, *, kind: type[QueueDescription | TopicDescription | SubscriptionDescription]
) -> dict[str, Any]:
    if node is None:
        return {}
    types = {name: entry for name, entry in property_types(kind).items() if name not in _NOT_IN_FILES}
    members = node.members(optional=tuple(types))
    return {types[name][0]: _READERS[types[name][1]](member) for name, member in members.items()}


def _described(node: _Node, *, make: Callable[[], T]) -> T:
    """Make a description, naming the place in the file when it refuses a value."""
    try:
        return make()
    except DescriptionError as error:
        name = property_name(error.field)
        inner = {"Path": "Name", "TopicPath": "Name", "Name": "Name", "Rules": "Rules"}.get(name, f"Properties.{name}")
        path = node.path if node.path.endswith(".Name") else f"{node.path}.{inner}"
        raise ConfigError(path, value=error.value, allowed=error.allowed) from error


def _list(members: Mapping[str, _Node], name: str) -> Iterator[_Node]:
    return members[name].items() if name in members else iter(())


def _boolean(node: _Node) -> bool:
    return node.value if isinstance(node.value, bool) else node.refuse("true, false")


def _integer(node: _Node) -> int:
    if isinstance(node.value, bool) or not isinstance(node.value, int):
        node.refuse("a whole number")
    return node.value


def _duration(node: _Node) -> TimeSpan:
    text = node.text()
    try:
        return TimeSpan.parse(text)
    except ValueError as error:
        allowed = f"an ISO 8601 duration such as PT1M, at most {TimeSpan.MAX}"
        raise ConfigError(node.path, value=text, allowed=allowed) from error


def _status(node: _Node) -> EntityStatus:
    known = [status.value for status in EntityStatus]
    return EntityStatus(node.text()) if node.value in known else node.refuse(", ".join(known))


def _optional(node: _Node) -> str | None:
    return None if node.value is None or node.value == "" else node.text()


_READERS: Final[Mapping[object, Callable[[_Node], object]]] = {
    bool: _boolean,
    int: _integer,
    TimeSpan: _duration,
    EntityStatus: _status,
    str | None: _optional,
}
