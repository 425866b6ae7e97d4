"""Rules of subscriptions as JSON, and back.

The members are those of the models ``Ruleproperties``, ``SqlFilter``, ``CorrelationFilter`` and ``Action`` of
azure-mgmt-servicebus 10. A property that a filter compares with is a string there; numbers and truth values
are taken as well, and shown as such.
"""

from __future__ import annotations

from typing import Final

from servicebus_emulator.admin.fields import format_time
from servicebus_emulator.arm.errors import arm_name
from servicebus_emulator.arm.values import Value
from servicebus_emulator.engine.descriptions import (
    CorrelationFilter,
    FilterValue,
    RuleDescription,
    RuleFilter,
    SqlAction,
    SqlFilter,
)
from servicebus_emulator.engine.timespan import TimeSpan

__all__ = ["described_rule", "rule_properties_of"]

_SQL: Final = "SqlFilter"
_CORRELATION: Final = "CorrelationFilter"
_COMPATIBILITY: Final = 20
_EXPRESSION: Final = ("sqlExpression", "compatibilityLevel", "requiresPreprocessing")
_TEXTS: Final = (
    "correlation_id",
    "message_id",
    "to",
    "reply_to",
    "label",
    "session_id",
    "reply_to_session_id",
    "content_type",
)


def rule_properties_of(rule: RuleDescription) -> dict[str, object]:
    """Return the ``properties`` of a rule."""
    document: dict[str, object] = {"action": {} if rule.action is None else _expression(rule.action.expression)}
    if isinstance(rule.filter, SqlFilter):
        return {**document, "filterType": _SQL, "sqlFilter": _expression(rule.filter.expression)}
    texts = {arm_name(name): getattr(rule.filter, name) for name in _TEXTS}
    shown: dict[str, object] = {name: text for name, text in texts.items() if text is not None}
    if len(rule.filter.properties) > 0:
        shown["properties"] = {name: _compared(value) for name, value in rule.filter.properties}
    return {**document, "filterType": _CORRELATION, "correlationFilter": shown}


def described_rule(properties: Value | None, *, name: str) -> RuleDescription:
    """Read what a rule is to be; without a filter it lets all pass.

    :raises ArmError: naming the member, its value and what is allowed.
    """
    given = {} if properties is None else properties.members("action", "filterType", "sqlFilter", "correlationFilter")
    action = None if "action" not in given else _sql(given["action"])
    return RuleDescription(
        name,
        filter=_filter(given.get("filterType"), sql=given.get("sqlFilter"), correlation=given.get("correlationFilter")),
        action=None if action is None else SqlAction(expression=action),
    )


def _filter(kind: Value | None, *, sql: Value | None, correlation: Value | None) -> RuleFilter:
    is_correlation = sql is None and correlation is not None
    if kind is not None:
        is_correlation = kind.one_of((_SQL, _CORRELATION)) == _CORRELATION
    if is_correlation:
        if sql is not None:
            sql.refuse("null, because filterType is CorrelationFilter")
        return CorrelationFilter() if correlation is None else _correlation(correlation)
    if correlation is not None:
        correlation.refuse("null, because filterType is SqlFilter")
    expression = None if sql is None else _sql(sql)
    return SqlFilter(expression="1=1" if expression is None else expression)


def _sql(part: Value) -> str | None:
    """Return an expression; its other members say nothing that anybody reads, and are checked."""
    members = part.members(*_EXPRESSION)
    if "compatibilityLevel" in members:
        members["compatibilityLevel"].integer()
    if "requiresPreprocessing" in members:
        members["requiresPreprocessing"].boolean()
    expression = members.get("sqlExpression")
    return None if expression is None else expression.optional_text()


def _correlation(part: Value) -> CorrelationFilter:
    names = {arm_name(name): name for name in _TEXTS}
    members = dict(part.members(*names, "properties", "requiresPreprocessing"))
    properties = members.pop("properties", None)
    preprocessing = members.pop("requiresPreprocessing", None)
    if preprocessing is not None:
        preprocessing.boolean()
    pairs = {} if properties is None else properties.entries()
    return CorrelationFilter(
        **{names[member]: value.text() for member, value in members.items()},
        properties=tuple((name, _filter_value(value)) for name, value in pairs.items()),
    )


def _filter_value(value: Value) -> FilterValue:
    if not isinstance(value.value, str | int | float | bool):
        value.refuse("a string, a number, true, false")
    return value.value


def _compared(value: FilterValue) -> object:
    if isinstance(value, str | int | float | bool):
        return value
    return str(value) if isinstance(value, TimeSpan) else format_time(value)


def _expression(text: str) -> dict[str, object]:
    return {"sqlExpression": text, "compatibilityLevel": _COMPATIBILITY}
