"""Rules of subscriptions as XML elements."""

from __future__ import annotations

from datetime import datetime
from typing import Final
from xml.etree.ElementTree import Element

from servicebus_emulator.admin.fields import format_time
from servicebus_emulator.admin.markup import SCHEMA, SCHEMA_INSTANCE, SERVICE_BUS, leaf
from servicebus_emulator.engine.descriptions import (
    CorrelationFilter,
    FilterValue,
    RuleDescription,
    RuleFilter,
    SqlAction,
    SqlFilter,
)
from servicebus_emulator.engine.timespan import TimeSpan

__all__ = ["encode_rule"]

_COMPATIBILITY: Final = "20"
_CONSTANT_FILTERS: Final = {"1=1": "TrueFilter", "1=0": "FalseFilter"}
_INT32: Final = 2**31


def encode_rule(rule: RuleDescription, *, created: datetime) -> Element:
    """Return the ``RuleDescription`` element of a rule.

    :param created: when the rule came into being, aware.
    """
    root = Element("RuleDescription", {"xmlns": SERVICE_BUS, "xmlns:i": SCHEMA_INSTANCE})
    _encode_filter(root, value=rule.filter)
    _encode_action(root, action=rule.action)
    leaf(root, "CreatedAt", text=format_time(created))
    leaf(root, "Name", text=rule.name)
    return root


def _encode_filter(parent: Element, *, value: RuleFilter) -> None:
    match value:
        case SqlFilter():
            kind = _CONSTANT_FILTERS.get(value.expression, "SqlFilter")
            element = leaf(parent, "Filter", **{"i:type": kind})
            leaf(element, "SqlExpression", text=value.expression)
            leaf(element, "CompatibilityLevel", text=_COMPATIBILITY)
            _encode_pairs(leaf(element, "Parameters"), pairs=value.parameters)
        case CorrelationFilter():
            element = leaf(parent, "Filter", **{"i:type": "CorrelationFilter"})
            for name, text in (
                ("CorrelationId", value.correlation_id),
                ("MessageId", value.message_id),
                ("To", value.to),
                ("ReplyTo", value.reply_to),
                ("Label", value.label),
                ("SessionId", value.session_id),
                ("ReplyToSessionId", value.reply_to_session_id),
                ("ContentType", value.content_type),
            ):
                if text is not None:
                    leaf(element, name, text=text)
            _encode_pairs(leaf(element, "Properties"), pairs=value.properties)


def _encode_action(parent: Element, *, action: SqlAction | None) -> None:
    if action is None:
        leaf(parent, "Action", **{"i:type": "EmptyRuleAction"})
        return
    element = leaf(parent, "Action", **{"i:type": "SqlRuleAction"})
    leaf(element, "SqlExpression", text=action.expression)
    leaf(element, "CompatibilityLevel", text=_COMPATIBILITY)
    _encode_pairs(leaf(element, "Parameters"), pairs=action.parameters)


def _encode_pairs(parent: Element, *, pairs: tuple[tuple[str, FilterValue], ...]) -> None:
    for key, value in pairs:
        kind, text = _typed(value)
        pair = leaf(parent, "KeyValueOfstringanyType")
        leaf(pair, "Key", text=key)
        leaf(pair, "Value", text=text, **{"i:type": f"d6p1:{kind}", "xmlns:d6p1": SCHEMA})


def _typed(value: FilterValue) -> tuple[str, str]:
    match value:
        case bool():
            return "boolean", "true" if value else "false"
        case int():
            return ("int" if -_INT32 <= value < _INT32 else "long"), str(value)
        case float():
            return "double", repr(value)
        case datetime():
            return "dateTime", format_time(value)
        case TimeSpan():
            return "duration", str(value)
        case str():
            return "string", value
