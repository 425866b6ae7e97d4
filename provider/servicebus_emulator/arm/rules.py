"""Encodes rules of subscriptions as JSON and decodes them.

The members are those of the models ``Ruleproperties``, ``SqlFilter``, ``CorrelationFilter`` and ``Action`` of
azure-mgmt-servicebus 10. A property of a correlation filter is a string there; the emulator also accepts
and returns numbers and booleans.
"""

from __future__ import annotations

from typing import Final

from servicebus_emulator.admin.atom.fields import format_time
from servicebus_emulator.arm.errors import camel_case
from servicebus_emulator.arm.json_values import JsonValue
from servicebus_emulator.engine.model.rule_descriptions import (
    CORRELATION_PROPERTIES,
    TRUE_FILTER,
    CorrelationFilter,
    FilterValue,
    RuleDescription,
    RuleFilter,
    SqlAction,
    SqlFilter,
)
from servicebus_emulator.engine.model.timespan import TimeSpan

_SQL: Final = "SqlFilter"
_CORRELATION: Final = "CorrelationFilter"
_COMPATIBILITY_LEVEL: Final = 20
_EXPRESSION_MEMBERS: Final = ("sqlExpression", "compatibilityLevel", "requiresPreprocessing")
_CORRELATION_MEMBERS: Final = {camel_case(name): name for name in CORRELATION_PROPERTIES}


def encode_rule(rule: RuleDescription) -> dict[str, object]:
    """Return the ``properties`` of a rule."""
    document: dict[str, object] = {"action": {} if rule.action is None else _encode_expression(rule.action.expression)}
    if isinstance(rule.filter, SqlFilter):
        return {**document, "filterType": _SQL, "sqlFilter": _encode_expression(rule.filter.expression)}
    texts = {member: getattr(rule.filter, name) for member, name in _CORRELATION_MEMBERS.items()}
    encoded: dict[str, object] = {name: text for name, text in texts.items() if text is not None}
    if len(rule.filter.properties) > 0:
        encoded["properties"] = {name: _encode_value(value) for name, value in rule.filter.properties}
    return {**document, "filterType": _CORRELATION, "correlationFilter": encoded}


def decode_rule(properties: JsonValue | None, *, name: str) -> RuleDescription:
    """Decode a rule; without a filter it matches all messages.

    :raises ArmError: a member has a value that is not allowed.
    """
    given = {} if properties is None else properties.members("action", "filterType", "sqlFilter", "correlationFilter")
    action = None if "action" not in given else _decode_expression(given["action"])
    return RuleDescription(
        name,
        filter=_decode_filter(
            given.get("filterType"), sql=given.get("sqlFilter"), correlation=given.get("correlationFilter")
        ),
        action=None if action is None else SqlAction(expression=action),
    )


def _decode_filter(kind: JsonValue | None, *, sql: JsonValue | None, correlation: JsonValue | None) -> RuleFilter:
    is_correlation = sql is None and correlation is not None
    if kind is not None:
        is_correlation = kind.one_of((_SQL, _CORRELATION)) == _CORRELATION
    if is_correlation:
        if sql is not None:
            sql.refuse("null, because filterType is CorrelationFilter")
        return CorrelationFilter() if correlation is None else _decode_correlation(correlation)
    if correlation is not None:
        correlation.refuse("null, because filterType is SqlFilter")
    expression = None if sql is None else _decode_expression(sql)
    return TRUE_FILTER if expression is None else SqlFilter(expression=expression)


def _decode_expression(part: JsonValue) -> str | None:
    """Return the expression of a part. The other members are validated and ignored."""
    members = part.members(*_EXPRESSION_MEMBERS)
    if "compatibilityLevel" in members:
        members["compatibilityLevel"].integer()
    if "requiresPreprocessing" in members:
        members["requiresPreprocessing"].boolean()
    expression = members.get("sqlExpression")
    return None if expression is None else expression.optional_text()


def _decode_correlation(part: JsonValue) -> CorrelationFilter:
    members = dict(part.members(*_CORRELATION_MEMBERS, "properties", "requiresPreprocessing"))
    properties = members.pop("properties", None)
    preprocessing = members.pop("requiresPreprocessing", None)
    if preprocessing is not None:
        preprocessing.boolean()
    pairs = {} if properties is None else properties.entries()
    return CorrelationFilter(
        **{_CORRELATION_MEMBERS[member]: value.text() for member, value in members.items()},
        properties=tuple((name, value.scalar()) for name, value in pairs.items()),
    )


def _encode_value(value: FilterValue) -> object:
    if isinstance(value, str | int | float | bool):
        return value
    return str(value) if isinstance(value, TimeSpan) else format_time(value)


def _encode_expression(text: str) -> dict[str, object]:
    return {"sqlExpression": text, "compatibilityLevel": _COMPATIBILITY_LEVEL}
