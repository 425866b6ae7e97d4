"""Encoding of subscription rules in management requests and responses.

Microsoft's "AMQP 1.0 in Azure Service Bus: request/response-based operations", rule operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from servicebus_emulator.amqp.codec.property_codec import property_value
from servicebus_emulator.amqp.codec.value_codec import Described, Timestamp, Value
from servicebus_emulator.engine.model.entity_names import DescriptionError
from servicebus_emulator.engine.model.errors import InvalidArgument
from servicebus_emulator.engine.model.rule_descriptions import (
    CORRELATION_PROPERTIES,
    FALSE_FILTER,
    TRUE_FILTER,
    CorrelationFilter,
    FilterValue,
    RuleDescription,
    RuleFilter,
    SqlAction,
    SqlFilter,
)
from servicebus_emulator.engine.sql.values import in_utc

_RULE: Final = 0x13700000004
_EMPTY_ACTION: Final = 0x13700000005
_ACTION: Final = 0x13700000006
_SQL: Final = 0x1370000006
_TRUE: Final = 0x1370000007
_FALSE: Final = 0x1370000008
_CORRELATION: Final = 0x1370000009
_CONSTANT_FILTERS: Final = {TRUE_FILTER.expression: _TRUE, FALSE_FILTER.expression: _FALSE}
_TEXT_FIELDS: Final = {name.replace("_", "-"): name for name in CORRELATION_PROPERTIES}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def decode_rule(name: str, description: Value) -> RuleDescription:
    """Decode the rule of an add-rule request.

    :param description: the entry ``rule-description``.
    :raises InvalidArgument: with the name of the invalid entry and what is allowed.
    """
    entries = _map(description, "rule-description")
    action = entries.get("sql-rule-action")
    try:
        return RuleDescription(
            name,
            filter=_decode_filter(entries),
            action=None if action is None else SqlAction(expression=_expression(action, "sql-rule-action")),
        )
    except DescriptionError as error:
        raise InvalidArgument(str(error)) from error


def encode_rule(rule: RuleDescription) -> Value:
    """Return a rule as the response to enumerate-rules lists it."""
    action = Described(_EMPTY_ACTION, []) if rule.action is None else Described(_ACTION, [rule.action.expression])
    return {"rule-description": Described(_RULE, [_encode_filter(rule.filter), action, rule.name])}


def _encode_filter(rule_filter: RuleFilter) -> Described:
    if isinstance(rule_filter, SqlFilter):
        constant = _CONSTANT_FILTERS.get(rule_filter.expression)
        return Described(_SQL, [rule_filter.expression]) if constant is None else Described(constant, [])
    texts: list[Value] = [getattr(rule_filter, attribute) for attribute in _TEXT_FIELDS.values()]
    properties: dict[Value, Value] = {name: property_value(in_utc(value)) for name, value in rule_filter.properties}
    return Described(_CORRELATION, [*texts, properties])


def _decode_filter(entries: Mapping[Value, Value]) -> RuleFilter:
    sql, correlation = entries.get("sql-filter"), entries.get("correlation-filter")
    if (sql is None) == (correlation is None):
        raise InvalidArgument("rule-description has no filter or two; allowed: either sql-filter or correlation-filter")
    if sql is not None:
        return SqlFilter(expression=_expression(sql, "sql-filter"))
    conditions = _map(correlation, "correlation-filter")
    texts = {attribute: _text(conditions.get(name), name) for name, attribute in _TEXT_FIELDS.items()}
    properties = conditions.get("properties")
    pairs = () if properties is None else tuple(_pairs(_map(properties, "properties")))
    return CorrelationFilter(**texts, properties=pairs)


def _pairs(properties: Mapping[Value, Value]) -> Iterator[tuple[str, FilterValue]]:
    for name, value in properties.items():
        if isinstance(name, str) and isinstance(value, Timestamp):
            try:
                yield name, _EPOCH + timedelta(milliseconds=value)
            except OverflowError as error:
                raise InvalidArgument(
                    f"property {name!r} is a time after the year 9999 or before the year 1"
                ) from error
        elif isinstance(name, str) and isinstance(value, str | int | float):
            yield name, value
        else:
            raise InvalidArgument(f"property {name!r} is not a string, number, boolean or timestamp")


def _expression(value: Value, name: str) -> str:
    expression = _map(value, name).get("expression")
    if not isinstance(expression, str):
        raise InvalidArgument(f"{name}.expression is {expression!r}; allowed: a string")
    return expression


def _map(value: Value, name: str) -> Mapping[Value, Value]:
    if not isinstance(value, dict):
        raise InvalidArgument(f"{name} is not a map")
    return value


def _text(value: Value, name: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InvalidArgument(f"{name} is {value!r}; allowed: a string")
    return value
