"""Evaluation of a subscription's rules.

See Microsoft's "Topic filters and actions": all matching rules without an action yield one message together; each
matching rule with an action yields its own copy, which carries the rule's name in the property ``RuleName``. A
subscription without rules receives nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Final, Protocol
from uuid import UUID

from servicebus_emulator.engine.model.entity_names import NOT_IN_XML, DescriptionError
from servicebus_emulator.engine.model.message import Content
from servicebus_emulator.engine.model.rule_descriptions import (
    CORRELATION_PROPERTIES,
    FALSE_FILTER,
    CorrelationFilter,
    FilterValue,
    RuleDescription,
    SqlFilter,
)
from servicebus_emulator.engine.sql.errors import SqlEvaluationError, SqlSyntaxError
from servicebus_emulator.engine.sql.evaluation import Evaluator
from servicebus_emulator.engine.sql.nodes import Statement
from servicebus_emulator.engine.sql.parser import parse_action, parse_filter
from servicebus_emulator.engine.sql.properties import MessageProperties
from servicebus_emulator.engine.sql.values import SqlValue, equal, in_utc

RULE_NAME: Final = "RuleName"

_INT64: Final = 2**63

_Predicate = Callable[[MessageProperties], bool]


class PropertyCodec(Protocol):
    """Reads and rewrites the properties of encoded messages."""

    def read(self, content: Content) -> MessageProperties:
        """Return the properties of a message.

        :raises SqlEvaluationError: when they cannot be decoded.
        """

    def rewrite(self, content: Content, *, before: MessageProperties, after: MessageProperties) -> Content:
        """Return the message with only the differences between `before` and `after` changed."""


class NoPropertyCodec:
    """The codec of a namespace without one: filters on properties cannot be evaluated."""

    def read(self, content: Content) -> MessageProperties:
        """Raise an error.

        :raises SqlEvaluationError: always.
        """
        raise SqlEvaluationError(f"a message of {content.size} bytes cannot be read: the namespace has no codec")

    def rewrite(self, content: Content, *, before: MessageProperties, after: MessageProperties) -> Content:
        """Raise an error.

        :raises SqlEvaluationError: always.
        """
        changed = sorted(before.user.keys() ^ after.user.keys())
        raise SqlEvaluationError(
            f"a message of {content.size} bytes cannot be changed ({changed}): the namespace has no codec"
        )


class PublishedMessage:
    """A message sent to a topic. Its properties are decoded once, when the first rule needs them."""

    __slots__ = ("_codec", "_properties", "content")

    def __init__(self, content: Content, *, codec: PropertyCodec) -> None:
        self.content = content
        self._codec = codec
        self._properties: MessageProperties | None = None

    @property
    def properties(self) -> MessageProperties:
        """The properties of the message.

        :raises SqlEvaluationError: when they cannot be decoded.
        """
        if self._properties is None:
            self._properties = self._codec.read(self.content)
        return self._properties

    def with_properties(self, properties: MessageProperties) -> Content:
        """Return the message with other properties."""
        return self._codec.rewrite(self.content, before=self.properties, after=properties)


@dataclass(frozen=True, slots=True)
class _Rule:
    description: RuleDescription
    matches: _Predicate
    action: tuple[Statement, ...]


class RuleSet:
    """The compiled rules of one subscription.

    :param rules: a rule that cannot be parsed (older versions may have stored one) fails for every message.
    :param new_uuid: returns a new UUID, for ``newid()``.
    :param earlier: what these rules were before a change, so that only those that are new are compiled.
    :ivar passes_all: whether the subscription receives every message unchanged.
    :ivar compiled: the rules that can match, unless all messages pass.
    """

    def __init__(
        self, rules: tuple[RuleDescription, ...], *, new_uuid: Callable[[], UUID], earlier: RuleSet | None = None
    ) -> None:
        self._evaluator = Evaluator(new_uuid=new_uuid)
        has_actions = any(rule.action is not None for rule in rules)
        self.passes_all: Final = not has_actions and any(rule.matches_all for rule in rules)
        relevant = () if self.passes_all else (rule for rule in rules if rule.filter != FALSE_FILTER)
        # By identity: in equal rules a value may still be of another type, such as 1 and true.
        compiled = {} if earlier is None else {id(each.description): each for each in earlier.compiled}
        self.compiled: Final[tuple[_Rule, ...]] = tuple(
            compiled.get(id(rule)) or self._compile(rule) for rule in relevant
        )

    def select(self, message: PublishedMessage) -> list[Content]:
        """Return what the subscription receives of a message: nothing, the message, changed copies, or both.

        :raises SqlEvaluationError: when a rule cannot be evaluated for this message.
        """
        if self.passes_all:
            return [message.content]
        unchanged: list[Content] = []
        changed: list[Content] = []
        for rule in self.compiled:
            try:
                if not rule.matches(message.properties):
                    continue
                if len(rule.action) == 0:
                    unchanged = [message.content]
                else:
                    changed.append(self._apply_action(rule, message))
            except SqlEvaluationError as error:
                raise SqlEvaluationError(f"rule {rule.description.name!r}: {error}") from error
        return unchanged + changed

    def _apply_action(self, rule: _Rule, message: PublishedMessage) -> Content:
        properties = message.properties.with_user(RULE_NAME, rule.description.name)
        return message.with_properties(self._evaluator.apply(rule.action, properties))

    def _compile(self, rule: RuleDescription) -> _Rule:
        try:
            return _Rule(rule, self._predicate(rule), _statements(rule))
        except SqlSyntaxError as error:
            return _Rule(rule, partial(_fail, f"the rule cannot be parsed: {error}"), ())

    def _predicate(self, rule: RuleDescription) -> _Predicate:
        if isinstance(rule.filter, CorrelationFilter):
            return partial(_matches_correlation, _system_values(rule.filter), _values(rule.filter.properties))
        predicate = parse_filter(rule.filter.expression, parameters=_values(rule.filter.parameters))
        # Without this set, which a later one would keep with the rule.
        evaluate = self._evaluator.evaluate
        return lambda properties: evaluate(predicate, properties) is True


def check_rule(rule: RuleDescription) -> None:
    """Check that a rule can be evaluated.

    :raises DescriptionError: when the filter or action is not valid SQL, or the filter is empty.
    """
    for name, value in _named_values(rule):
        if isinstance(value, str) and NOT_IN_XML.search(value) is not None:
            raise DescriptionError(name, value=value, allowed="characters that XML can represent")
        if isinstance(value, int) and not -_INT64 <= value < _INT64:
            raise DescriptionError(name, value=value, allowed=f"{-_INT64} .. {_INT64 - 1}")
    rule_filter = rule.filter
    if isinstance(rule_filter, SqlFilter):
        _check_expression(
            "sql_filter",
            rule_filter.expression,
            lambda: parse_filter(rule_filter.expression, parameters=_values(rule_filter.parameters)),
        )
    elif rule_filter == CorrelationFilter():
        raise DescriptionError("correlation_filter", value="empty", allowed="at least one property to compare")
    action = rule.action
    if action is not None:
        _check_expression("action", action.expression, lambda: _statements(rule))


def _named_values(rule: RuleDescription) -> Iterator[tuple[str, object]]:
    """Yield every value in a rule with the field name to report."""
    rule_filter, action = rule.filter, rule.action
    for part in (rule_filter, action):
        yield from () if part is None else ((field.name, getattr(part, field.name)) for field in fields(part))
    pairs = rule_filter.properties if isinstance(rule_filter, CorrelationFilter) else rule_filter.parameters
    for name, value in (*pairs, *(() if action is None else action.parameters)):
        yield "properties", name
        yield name, value


def _check_expression(field: str, expression: str, parse: Callable[[], object]) -> None:
    try:
        parse()
    except SqlSyntaxError as error:
        raise DescriptionError(field, value=expression, allowed=f"a valid expression ({error})") from error


def _statements(rule: RuleDescription) -> tuple[Statement, ...]:
    if rule.action is None:
        return ()
    return parse_action(rule.action.expression, parameters=_values(rule.action.parameters))


def _system_values(correlation: CorrelationFilter) -> Mapping[str, str]:
    """Return the system properties that a correlation filter compares."""
    named = {name.replace("_", ""): getattr(correlation, name) for name in CORRELATION_PROPERTIES}
    return {name: value for name, value in named.items() if value is not None}


def _values(pairs: tuple[tuple[str, FilterValue], ...]) -> Mapping[str, SqlValue]:
    return {name: in_utc(value) for name, value in pairs}


def _matches_correlation(
    system: Mapping[str, str], user: Mapping[str, SqlValue], properties: MessageProperties
) -> bool:
    return all(equal(properties.system_value(name), value) for name, value in system.items()) and all(
        equal(properties.user_value(name), value) for name, value in user.items()
    )


def _fail(reason: str, _: MessageProperties) -> bool:
    raise SqlEvaluationError(reason)
