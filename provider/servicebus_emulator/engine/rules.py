"""The rules of a subscription at work: which messages it receives, and changed in which way.

Microsoft's "Topic filters and actions": all rules without an action that match yield one message together;
each rule with an action that matches yields a copy of its own, which carries the rule's name in ``RuleName``.
A subscription without rules receives nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Final, Protocol
from uuid import UUID

from servicebus_emulator.engine.descriptions import (
    NOT_IN_XML,
    CorrelationFilter,
    DescriptionError,
    FilterValue,
    RuleDescription,
    SqlFilter,
)
from servicebus_emulator.engine.message import Content
from servicebus_emulator.engine.sql.errors import SqlEvaluationError, SqlSyntaxError
from servicebus_emulator.engine.sql.evaluation import Evaluation
from servicebus_emulator.engine.sql.nodes import Statement
from servicebus_emulator.engine.sql.parser import parse_action, parse_filter
from servicebus_emulator.engine.sql.properties import MessageProperties
from servicebus_emulator.engine.sql.values import SqlValue, equal, in_utc

__all__ = ["RULE_NAME", "Examined", "PropertyCodec", "RuleSet", "UnreadableContents", "check_rule"]

RULE_NAME: Final = "RuleName"

_INT64: Final = 2**63
_FALSE_FILTER: Final = SqlFilter(expression="1=0")

_Matches = Callable[[MessageProperties], bool]


class PropertyCodec(Protocol):
    """Reads and changes the properties of encoded messages."""

    def read(self, content: Content) -> MessageProperties:
        """Return the properties of a message.

        :raises SqlEvaluationError: when they cannot be read.
        """
        ...

    def revise(self, content: Content, *, before: MessageProperties, after: MessageProperties) -> Content:
        """Return a message in which what differs between `before` and `after` was changed, and nothing else."""
        ...


class UnreadableContents:
    """The codec of a namespace whose messages nobody can read: no filter of properties can be evaluated."""

    def read(self, content: Content) -> MessageProperties:
        """Refuse.

        :raises SqlEvaluationError: always.
        """
        raise SqlEvaluationError(f"a message of {content.size} bytes cannot be read: the namespace has no codec")

    def revise(self, content: Content, *, before: MessageProperties, after: MessageProperties) -> Content:
        """Refuse.

        :raises SqlEvaluationError: always.
        """
        changed = sorted(before.user.keys() ^ after.user.keys())
        raise SqlEvaluationError(f"a message of {content.size} bytes cannot be changed ({changed}): no codec")


class Examined:
    """A message on its way to subscriptions; its properties are read at most once, when a rule asks for them."""

    __slots__ = ("_codec", "_properties", "content")

    def __init__(self, content: Content, *, codec: PropertyCodec) -> None:
        self.content = content
        self._codec = codec
        self._properties: MessageProperties | None = None

    @property
    def properties(self) -> MessageProperties:
        """The properties of the message.

        :raises SqlEvaluationError: when they cannot be read.
        """
        if self._properties is None:
            self._properties = self._codec.read(self.content)
        return self._properties

    def revised(self, after: MessageProperties) -> Content:
        """Return the message with other properties."""
        return self._codec.revise(self.content, before=self.properties, after=after)


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str
    matches: _Matches
    action: tuple[Statement, ...]


class RuleSet:
    """The rules of one subscription, ready to be evaluated.

    :param rules: a rule that cannot be read, as an older version may have stored it, fails for each message.
    :param new_uuid: returns a new UUID, for ``newid()``.
    """

    def __init__(self, rules: tuple[RuleDescription, ...], *, new_uuid: Callable[[], UUID]) -> None:
        self._evaluation = Evaluation(new_uuid=new_uuid)
        acting = any(rule.action is not None for rule in rules)
        self.passes_all: Final = not acting and any(rule.matches_all for rule in rules)
        asking = () if self.passes_all else (rule for rule in rules if rule.filter != _FALSE_FILTER)
        self._rules = tuple(self._prepare(rule) for rule in asking)

    def select(self, message: Examined) -> list[Content]:
        """Return what the subscription receives of a message: nothing, the message, changed copies, or both.

        :raises SqlEvaluationError: when a rule cannot be evaluated for this message.
        """
        if self.passes_all:
            return [message.content]
        plain: list[Content] = []
        changed: list[Content] = []
        for rule in self._rules:
            try:
                if not rule.matches(message.properties):
                    continue
                if len(rule.action) == 0:
                    plain = [message.content]
                else:
                    changed.append(self._acted(rule, message))
            except SqlEvaluationError as error:
                raise SqlEvaluationError(f"rule {rule.name!r}: {error}") from error
        return plain + changed

    def _acted(self, rule: _Rule, message: Examined) -> Content:
        named = message.properties.with_user(RULE_NAME, rule.name)
        return message.revised(self._evaluation.apply(rule.action, named))

    def _prepare(self, rule: RuleDescription) -> _Rule:
        try:
            return _Rule(rule.name, self._condition(rule), _statements(rule))
        except SqlSyntaxError as error:
            return _Rule(rule.name, partial(_fail, f"the rule cannot be read: {error}"), ())

    def _condition(self, rule: RuleDescription) -> _Matches:
        if isinstance(rule.filter, CorrelationFilter):
            return partial(_correlates, _expected(rule.filter), _values(rule.filter.properties))
        predicate = parse_filter(rule.filter.expression, parameters=_values(rule.filter.parameters))
        return lambda properties: self._evaluation.holds(predicate, properties) is True


def check_rule(rule: RuleDescription) -> None:
    """Check that a rule can be evaluated.

    :raises DescriptionError: when its filter or action does not follow the language, or asks for nothing.
    """
    for name, value in _given(rule):
        if isinstance(value, str) and NOT_IN_XML.search(value) is not None:
            raise DescriptionError(name, value=value, allowed="characters that XML can carry")
        if isinstance(value, int) and not -_INT64 <= value < _INT64:
            raise DescriptionError(name, value=value, allowed=f"{-_INT64} .. {_INT64 - 1}")
    described = rule.filter
    if isinstance(described, SqlFilter):
        _check(
            "sql_filter",
            described.expression,
            lambda: parse_filter(described.expression, parameters=_values(described.parameters)),
        )
    elif described == CorrelationFilter():
        raise DescriptionError("correlation_filter", value="empty", allowed="at least one property to compare")
    action = rule.action
    if action is not None:
        _check(
            "action", action.expression, lambda: parse_action(action.expression, parameters=_values(action.parameters))
        )


def _given(rule: RuleDescription) -> Iterator[tuple[str, object]]:
    """Yield all that a rule says, by the name under which a fault is reported."""
    described, action = rule.filter, rule.action
    for part in (described, action):
        yield from () if part is None else ((field.name, getattr(part, field.name)) for field in fields(part))
    pairs = described.properties if isinstance(described, CorrelationFilter) else described.parameters
    for name, value in (*pairs, *(() if action is None else action.parameters)):
        yield "properties", name
        yield name, value


def _check(field: str, expression: str, parse: Callable[[], object]) -> None:
    try:
        parse()
    except SqlSyntaxError as error:
        raise DescriptionError(field, value=expression, allowed=f"an expression, but it has {error}") from error


def _statements(rule: RuleDescription) -> tuple[Statement, ...]:
    if rule.action is None:
        return ()
    return parse_action(rule.action.expression, parameters=_values(rule.action.parameters))


def _expected(described: CorrelationFilter) -> Mapping[str, str]:
    """Return the system properties that a correlation filter asks for."""
    named = {field.name.replace("_", ""): getattr(described, field.name) for field in fields(described)}
    return {name: value for name, value in named.items() if name != "properties" and value is not None}


def _values(pairs: tuple[tuple[str, FilterValue], ...]) -> Mapping[str, SqlValue]:
    return {name: in_utc(value) for name, value in pairs}


def _correlates(system: Mapping[str, str], user: Mapping[str, SqlValue], properties: MessageProperties) -> bool:
    return all(equal(properties.system_value(name), value) for name, value in system.items()) and all(
        equal(properties.user_value(name), value) for name, value in user.items()
    )


def _fail(reason: str, _: MessageProperties) -> bool:
    raise SqlEvaluationError(reason)
