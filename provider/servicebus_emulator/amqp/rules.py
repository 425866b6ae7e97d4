"""Rules of subscriptions as requests carry them and answers describe them.

Microsoft's "AMQP 1.0 in Azure Service Bus: request/response-based operations", rule operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from servicebus_emulator.amqp.properties import property_value
from servicebus_emulator.amqp.values import Described, Timestamp, Value
from servicebus_emulator.engine.descriptions import (
    CorrelationFilter,
    DescriptionError,
    FilterValue,
    RuleDescription,
    RuleFilter,
    SqlAction,
    SqlFilter,
)
from servicebus_emulator.engine.errors import InvalidArgument
from servicebus_emulator.engine.sql.values import in_utc

__all__ = ["describe_rule", "read_rule"]

_RULE: Final = 0x13700000004
_EMPTY_ACTION: Final = 0x13700000005
_ACTION: Final = 0x13700000006
_SQL: Final = 0x1370000006
_TRUE: Final = 0x1370000007
_FALSE: Final = 0x1370000008
_CORRELATION: Final = 0x1370000009
_CONSTANT_FILTERS: Final = {"1=1": _TRUE, "1=0": _FALSE}
_TEXTS: Final[Mapping[str, str]] = {
    "correlation-id": "correlation_id",
    "message-id": "message_id",
    "to": "to",
    "reply-to": "reply_to",
    "label": "label",
    "session-id": "session_id",
    "reply-to-session-id": "reply_to_session_id",
    "content-type": "content_type",
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def read_rule(name: str, described: Value) -> RuleDescription:
    """Read the rule of an add-rule request.

    :param described: the entry ``rule-description``.
    :raises InvalidArgument: naming the entry and what is allowed.
    """
    entries = _map(described, "rule-description")
    action = entries.get("sql-rule-action")
    try:
        return RuleDescription(
            name,
            filter=_read_filter(entries),
            action=None if action is None else SqlAction(expression=_expression(action, "sql-rule-action")),
        )
    except DescriptionError as error:
        raise InvalidArgument(str(error)) from error


def describe_rule(rule: RuleDescription) -> Value:
    """Return a rule as the answer to enumerate-rules lists it."""
    action = Described(_EMPTY_ACTION, []) if rule.action is None else Described(_ACTION, [rule.action.expression])
    return {"rule-description": Described(_RULE, [_describe_filter(rule.filter), action, rule.name])}


def _describe_filter(described: RuleFilter) -> Described:
    if isinstance(described, SqlFilter):
        constant = _CONSTANT_FILTERS.get(described.expression)
        return Described(_SQL, [described.expression]) if constant is None else Described(constant, [])
    texts: list[Value] = [getattr(described, attribute) for attribute in _TEXTS.values()]
    properties: dict[Value, Value] = {name: property_value(in_utc(value)) for name, value in described.properties}
    return Described(_CORRELATION, [*texts, properties])


def _read_filter(entries: Mapping[Value, Value]) -> RuleFilter:
    sql, correlation = entries.get("sql-filter"), entries.get("correlation-filter")
    if (sql is None) == (correlation is None):
        raise InvalidArgument("rule-description has no filter or two; allowed: either sql-filter or correlation-filter")
    if sql is not None:
        return SqlFilter(expression=_expression(sql, "sql-filter"))
    conditions = _map(correlation, "correlation-filter")
    texts = {attribute: _text(conditions.get(name), name) for name, attribute in _TEXTS.items()}
    properties = conditions.get("properties")
    pairs = () if properties is None else tuple(_pairs(_map(properties, "properties")))
    return CorrelationFilter(**texts, properties=pairs)


def _pairs(properties: Mapping[Value, Value]) -> Iterator[tuple[str, FilterValue]]:
    for name, value in properties.items():
        if isinstance(name, str) and isinstance(value, Timestamp):
            yield name, _EPOCH + timedelta(milliseconds=value)
        elif isinstance(name, str) and isinstance(value, str | int | float):
            yield name, value
        else:
            raise InvalidArgument(f"property {name!r} is no string, number, boolean or timestamp")


def _expression(described: Value, name: str) -> str:
    expression = _map(described, name).get("expression")
    if not isinstance(expression, str):
        raise InvalidArgument(f"{name}.expression is {expression!r}; allowed: a string")
    return expression


def _map(value: Value, name: str) -> Mapping[Value, Value]:
    if not isinstance(value, dict):
        raise InvalidArgument(f"{name} is no map")
    return value


def _text(value: Value, name: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InvalidArgument(f"{name} is {value!r}; allowed: a string")
    return value
