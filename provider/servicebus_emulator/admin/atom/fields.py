"""Encodes descriptions as XML elements and decodes them, field by field.

The name of an element is the attribute in Pascal case: ``max_delivery_count`` is ``MaxDeliveryCount``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, get_type_hints
from xml.etree.ElementTree import Element

from servicebus_emulator.admin.atom.elements import ELEMENTS, READ_ONLY, SINCE
from servicebus_emulator.admin.atom.xml import COUNTS, SCHEMA_INSTANCE, SERVICE_BUS, leaf, local_name
from servicebus_emulator.engine.model.descriptions import (
    IDENTITY,
    AccessRight,
    AuthorizationRule,
    Description,
    EntityStatus,
    MessageCounts,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.entity_names import DescriptionError
from servicebus_emulator.engine.model.timespan import TimeSpan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from servicebus_emulator.engine.namespace.entity_registry import EntityTimes


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeProperties:
    """The read-only properties of an entity: counts, size in bytes, times."""

    counts: MessageCounts
    times: EntityTimes
    size_in_bytes: int
    subscription_count: int = 0
    sql_filter_count: int = 0
    correlation_filter_count: int = 0


_NOT_SETTABLE: Final = IDENTITY | {"rules", "_"}


def property_name(attribute: str) -> str:
    """Return the name of an attribute in the administration API: ``lock_duration`` is ``LockDuration``."""
    return "".join(word.capitalize() for word in attribute.split("_"))


_PROPERTY_TYPES: Final[Mapping[type[Description], Mapping[str, tuple[str, object]]]] = {
    kind: {
        property_name(name): (name, hint) for name, hint in get_type_hints(kind).items() if name not in _NOT_SETTABLE
    }
    for kind in (QueueDescription, TopicDescription, SubscriptionDescription)
}


def property_types(kind: type[Description]) -> Mapping[str, tuple[str, object]]:
    """Map each settable property of a description to its attribute and type, without its identity and rules."""
    return _PROPERTY_TYPES[kind]


def decode(element: Element, *, kind: type[Description], given: Mapping[str, Any], version: str) -> Description:
    """Decode a description.

    :param element: the ``QueueDescription``, ``TopicDescription`` or ``SubscriptionDescription`` element.
    :param kind: the class of the description.
    :param given: attributes that are not in the document or may be omitted: identity, defaults of this request.
    :param version: the api-version of the document.
    :raises DescriptionError: a property is unknown, repeated, or has a value that is not allowed.
    """
    types = property_types(kind)
    values: dict[str, Any] = {}
    for child in element:
        name = local_name(child)
        if name == "IsClientAffine" and (child.text or "").strip().lower() == "true":
            raise DescriptionError(name, value=child.text, allowed="false; JMS subscriptions are not supported")
        if name in READ_ONLY or child.get(f"{{{SCHEMA_INSTANCE}}}nil") == "true":
            continue
        if child.tag != f"{{{SERVICE_BUS}}}{name}" or name not in types:
            raise DescriptionError(kind.__name__, value=child.tag, allowed=", ".join(types))
        if SINCE.get(name, version) > version:
            raise DescriptionError(name, value=child.text, allowed=f"none before api-version {SINCE[name]}")
        attribute, hint = types[name]
        if attribute in values:
            raise DescriptionError(name, value="given twice", allowed="each property once")
        values[attribute] = _decode_value(child, name=name, hint=hint)
    return kind(**{**given, **values})


def encode(description: Description, *, runtime: RuntimeProperties, version: str, with_counts: bool = True) -> Element:
    """Return the element of a description with all fields, set or not, and its runtime properties.

    :param version: the api-version of the element.
    :param with_counts: whether it has ``CountDetails``, which the service omits in the answer to a PUT.
    """
    kind = type(description)
    root = Element(kind.__name__, {"xmlns": SERVICE_BUS, "xmlns:i": SCHEMA_INSTANCE})
    types = property_types(kind)
    computed = _computed(runtime)
    for name in (name for name in ELEMENTS[kind] if SINCE.get(name, version) <= version):
        if name == "CountDetails":
            if with_counts:
                _encode_counts(root, counts=runtime.counts)
        elif name == "AuthorizationRules":
            _encode_authorization(root, description=description)
        elif name in computed:
            leaf(root, name, text=computed[name])
        else:
            text = _text(getattr(description, types[name][0]))
            if text is not None:
                leaf(root, name, text=text)
    return root


def format_time(value: datetime) -> str:
    """Format a time in UTC as the service does: without trailing zeros."""
    text = value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")
    return text.rstrip("0").removesuffix(".") + "Z"


def _computed(runtime: RuntimeProperties) -> Mapping[str, str]:
    return {
        "SizeInBytes": str(runtime.size_in_bytes),
        "MessageCount": str(runtime.counts.total),
        "SubscriptionCount": str(runtime.subscription_count),
        "SqlFilterCount": str(runtime.sql_filter_count),
        "CorrelationFilterCount": str(runtime.correlation_filter_count),
        "CreatedAt": format_time(runtime.times.created),
        "UpdatedAt": format_time(runtime.times.updated),
        "AccessedAt": format_time(runtime.times.accessed),
        "EntityAvailabilityStatus": "Available",
        "IsClientAffine": "false",
    }


def _encode_counts(parent: Element, *, counts: MessageCounts) -> None:
    details = leaf(parent, "CountDetails", **{"xmlns:d2p1": COUNTS})
    for name, value in (
        ("ActiveMessageCount", counts.active),
        ("DeadLetterMessageCount", counts.dead_lettered),
        ("ScheduledMessageCount", counts.scheduled),
        ("TransferMessageCount", counts.transfer),
        ("TransferDeadLetterMessageCount", counts.transfer_dead_lettered),
    ):
        leaf(details, f"d2p1:{name}", text=str(value))


def _encode_authorization(parent: Element, *, description: Description) -> None:
    rules = leaf(parent, "AuthorizationRules")
    for rule in () if isinstance(description, SubscriptionDescription) else description.authorization_rules:
        element = leaf(rules, "AuthorizationRule", **{"i:type": rule.type})
        leaf(element, "ClaimType", text=rule.claim_type)
        leaf(element, "ClaimValue", text=rule.claim_value)
        rights = leaf(element, "Rights")
        for right in rule.rights:
            leaf(rights, "AccessRights", text=right.value)
        for name, value in (
            ("CreatedTime", rule.created_time),
            ("ModifiedTime", rule.modified_time),
            ("KeyName", rule.key_name),
            ("PrimaryKey", rule.primary_key),
            ("SecondaryKey", rule.secondary_key),
        ):
            text = _text(value)
            if text is not None:
                leaf(element, name, text=text)


def _text(value: object) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case datetime():
            return format_time(value)
        case _:
            return str(value)


def _decode_value(element: Element, *, name: str, hint: object) -> object:
    if hint == tuple[AuthorizationRule, ...]:
        return tuple(_decode_authorization(rule) for rule in element)
    text = element.text or ""
    try:
        return _DECODERS[hint](text if hint == (str | None) else text.strip())
    except ValueError as error:
        raise DescriptionError(name, value=text, allowed=str(error)) from error


def _boolean(text: str) -> bool:
    values = {"true": True, "1": True, "false": False, "0": False}
    if text.lower() not in values:
        raise ValueError("true, false")
    return values[text.lower()]


def _integer(text: str) -> int:
    if re.fullmatch(r"-?[0-9]{1,18}", text) is None:
        raise ValueError("a whole number")
    return int(text)


def _duration(text: str) -> TimeSpan:
    try:
        return TimeSpan.parse(text)
    except ValueError as error:
        raise ValueError(f"an ISO 8601 duration such as PT1M, at most {TimeSpan.MAX}") from error


def _status(text: str) -> EntityStatus:
    if text not in list(EntityStatus):
        raise ValueError(", ".join(EntityStatus))
    return EntityStatus(text)


_DECODERS: Final[Mapping[object, Callable[[str], object]]] = {
    bool: _boolean,
    int: _integer,
    TimeSpan: _duration,
    EntityStatus: _status,
    str | None: lambda text: text if text != "" else None,
}


def _decode_authorization(element: Element) -> AuthorizationRule:
    texts = {local_name(child): (child.text or "").strip() for child in element}
    rights = [child for child in element if local_name(child) == "Rights"]
    names = [(right.text or "").strip() for group in rights for right in group]
    for right in names:
        if right not in list(AccessRight):
            raise DescriptionError("AuthorizationRule.Rights", value=right, allowed=", ".join(AccessRight))
    return AuthorizationRule(
        type=element.get(f"{{{SCHEMA_INSTANCE}}}type", "SharedAccessAuthorizationRule"),
        claim_type=texts.get("ClaimType", "SharedAccessKey"),
        claim_value=texts.get("ClaimValue", "None"),
        rights=tuple(AccessRight(right) for right in names),
        created_time=_time("CreatedTime", text=texts.get("CreatedTime")),
        modified_time=_time("ModifiedTime", text=texts.get("ModifiedTime")),
        key_name=texts.get("KeyName"),
        primary_key=texts.get("PrimaryKey"),
        secondary_key=texts.get("SecondaryKey"),
    )


def _time(name: str, *, text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        allowed = "a time in ISO 8601, such as 2026-11-20T21:00:00Z"
        raise DescriptionError(f"AuthorizationRule.{name}", value=text, allowed=allowed) from error
