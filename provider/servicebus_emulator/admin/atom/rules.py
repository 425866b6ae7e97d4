"""Encodes rules of subscriptions as XML elements and decodes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Final
from xml.etree.ElementTree import Element

from servicebus_emulator.admin.atom.fields import format_time, property_name
from servicebus_emulator.admin.atom.xml import DURATIONS, SCHEMA, SCHEMA_INSTANCE, SERVICE_BUS, leaf, local_name
from servicebus_emulator.engine.model.entity_names import DescriptionError
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
from servicebus_emulator.engine.model.timespan import TimeSpan

_COMPATIBILITY_LEVEL: Final = "20"
_CONSTANT_FILTERS: Final = {TRUE_FILTER.expression: "TrueFilter", FALSE_FILTER.expression: "FalseFilter"}
_INT32: Final = 2**31
_INT64: Final = 2**63
_CORRELATION_ELEMENTS: Final = {property_name(name): name for name in CORRELATION_PROPERTIES}


def encode_rule(rule: RuleDescription, *, created: datetime) -> Element:
    """Return the ``RuleDescription`` element of a rule.

    :param created: creation time of the rule, with a time zone.
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
            leaf(element, "CompatibilityLevel", text=_COMPATIBILITY_LEVEL)
            if kind == "SqlFilter":
                _encode_parameters(element, pairs=value.parameters)
        case CorrelationFilter():
            element = leaf(parent, "Filter", **{"i:type": "CorrelationFilter"})
            for name, attribute in _CORRELATION_ELEMENTS.items():
                text = getattr(value, attribute)
                if text is not None:
                    leaf(element, name, text=text)
            _encode_pairs(leaf(element, "Properties"), pairs=value.properties)


def _encode_action(parent: Element, *, action: SqlAction | None) -> None:
    if action is None:
        leaf(parent, "Action", **{"i:type": "EmptyRuleAction"})
        return
    element = leaf(parent, "Action", **{"i:type": "SqlRuleAction"})
    leaf(element, "SqlExpression", text=action.expression)
    leaf(element, "CompatibilityLevel", text=_COMPATIBILITY_LEVEL)
    _encode_parameters(element, pairs=action.parameters)


def _encode_parameters(parent: Element, *, pairs: tuple[tuple[str, FilterValue], ...]) -> None:
    if len(pairs) > 0:
        _encode_pairs(leaf(parent, "Parameters"), pairs=pairs)
    leaf(parent, "RequiresPreprocessing", text="true")


def _encode_pairs(parent: Element, *, pairs: tuple[tuple[str, FilterValue], ...]) -> None:
    for key, value in pairs:
        kind, text = _typed(value)
        pair = leaf(parent, "KeyValueOfstringanyType")
        leaf(pair, "Key", text=key)
        schema = DURATIONS if kind == "duration" else SCHEMA
        leaf(pair, "Value", text=text, **{"i:type": f"d6p1:{kind}", "xmlns:d6p1": schema})


def _typed(value: FilterValue) -> tuple[str, str]:
    match value:
        case bool():
            return "boolean", "true" if value else "false"
        case int():
            return ("int" if -_INT32 <= value < _INT32 else "long"), str(value)
        case float():
            return "double", repr(value)
        case datetime():
            # A time without a zone is returned without one: the official clients compare it with what they sent.
            return "dateTime", value.isoformat() if value.tzinfo is None else format_time(value)
        case TimeSpan():
            return "duration", str(value)
        case str():
            return "string", value


def decode_rule(element: Element, *, name: str) -> RuleDescription:
    """Decode a rule.

    :param element: the ``RuleDescription`` or ``DefaultRuleDescription`` element.
    :param name: the name of the rule; a name inside the element is ignored.
    :raises DescriptionError: a part has a value that is not allowed.
    """
    return RuleDescription(name, filter=_decode_filter(_child(element, "Filter")), action=_decode_action(element))


def _decode_filter(element: Element | None) -> RuleFilter:
    kind = _type_attribute(element)
    if element is None or kind in {None, "TrueFilter"}:
        return TRUE_FILTER
    if kind == "FalseFilter":
        return FALSE_FILTER
    if kind == "SqlFilter":
        return SqlFilter(expression=_expression(element), parameters=_pairs(_child(element, "Parameters")))
    if kind == "CorrelationFilter":
        found = {local_name(child): child.text for child in element}
        texts = {attribute: found[name] for name, attribute in _CORRELATION_ELEMENTS.items() if found.get(name)}
        return CorrelationFilter(**texts, properties=_pairs(_child(element, "Properties")))
    raise DescriptionError("filter", value=kind, allowed="TrueFilter, FalseFilter, SqlFilter, CorrelationFilter")


def _decode_action(parent: Element) -> SqlAction | None:
    element = _child(parent, "Action")
    kind = _type_attribute(element)
    if element is None or kind in {None, "EmptyRuleAction"}:
        return None
    if kind != "SqlRuleAction":
        raise DescriptionError("action", value=kind, allowed="EmptyRuleAction, SqlRuleAction")
    return SqlAction(expression=_expression(element), parameters=_pairs(_child(element, "Parameters")))


def _child(parent: Element, name: str) -> Element | None:
    return parent.find(f"{{{SERVICE_BUS}}}{name}")


def _type_attribute(element: Element | None) -> str | None:
    kind = None if element is None else element.get(f"{{{SCHEMA_INSTANCE}}}type")
    return None if kind is None else kind.rpartition(":")[2]


def _expression(element: Element) -> str:
    text = element.findtext(f"{{{SERVICE_BUS}}}SqlExpression")
    if text is None:
        raise DescriptionError("sql_expression", value=None, allowed="an expression")
    return text


def _pairs(parent: Element | None) -> tuple[tuple[str, FilterValue], ...]:
    return () if parent is None else tuple(_decode_pairs(parent))


def _decode_pairs(parent: Element) -> Iterator[tuple[str, FilterValue]]:
    for pair in parent:
        key, value = _child(pair, "Key"), _child(pair, "Value")
        if key is None or key.text is None or value is None:
            raise DescriptionError(local_name(parent), value=local_name(pair), allowed="pairs of Key and Value")
        kind = _type_attribute(value)
        decoder = _DECODERS.get(kind or "string")
        if decoder is None:
            raise DescriptionError(key.text, value=kind, allowed=f"a value of type {', '.join(_DECODERS)}")
        text = value.text or ""
        try:
            decoded = decoder(text)
        except ValueError as error:
            raise DescriptionError(key.text, value=text, allowed=f"a value of type {kind}") from error
        yield key.text, decoded


def _integer(text: str) -> int:
    number = int(text)
    if not -_INT64 <= number < _INT64:
        raise ValueError("more than 64 bits")
    return number


def _boolean(text: str) -> bool:
    values = {"true": True, "1": True, "false": False, "0": False}
    if text not in values:
        raise ValueError("not a boolean")
    return values[text]


_DECODERS: Final[Mapping[str, Callable[[str], FilterValue]]] = {
    "string": str,
    "int": _integer,
    "long": _integer,
    "double": float,
    "boolean": _boolean,
    "dateTime": datetime.fromisoformat,
    "duration": TimeSpan.parse,
}
