"""Descriptions of entities as JSON, exactly."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final

from servicebus_emulator.engine import descriptions
from servicebus_emulator.engine.access_rules import AccessRule
from servicebus_emulator.engine.journal import Description, JournalError
from servicebus_emulator.engine.timespan import TimeSpan

__all__ = ["dump_access_rule", "dump_description", "load_access_rule", "load_description"]

_TYPE: Final = "$type"
_TYPES: Final[dict[str, type[Any]]] = {
    each.__name__: each
    for each in (
        descriptions.AccessRight,
        descriptions.AuthorizationRule,
        descriptions.CorrelationFilter,
        descriptions.EntityStatus,
        descriptions.QueueDescription,
        descriptions.RuleDescription,
        descriptions.SqlAction,
        descriptions.SqlFilter,
        descriptions.SubscriptionDescription,
        descriptions.TopicDescription,
        TimeSpan,
        datetime,
    )
}


def dump_description(description: Description) -> str:
    """Write a description as JSON in which every value carries its type."""
    return json.dumps(_dump(description), ensure_ascii=False)


def load_description(text: str) -> Description:
    """Read what :func:`dump_description` wrote. A field that is missing gets its default.

    :raises JournalError: when it is no description of this version or an older one.
    """
    try:
        description = _load(json.loads(text))
    except (KeyError, TypeError, ValueError) as error:
        raise JournalError(f"a stored description cannot be read: {error}") from error
    if not isinstance(description, Description):
        raise JournalError(f"a stored description is a {type(description).__name__}")
    return description


def dump_access_rule(rule: AccessRule) -> tuple[str, str, str, str, str, str]:
    """Write a shared access rule as a row."""
    rights = ",".join(sorted(rule.rights))
    return rule.name, rights, rule.primary_key, rule.secondary_key, rule.created.isoformat(), rule.modified.isoformat()


def load_access_rule(row: tuple[str, str, str, str, str, str]) -> AccessRule:
    """Read what :func:`dump_access_rule` wrote.

    :raises JournalError: when it is no rule of this version or an older one.
    """
    name, rights, primary_key, secondary_key, created, modified = row
    try:
        return AccessRule(
            name=name,
            rights=frozenset(map(descriptions.AccessRight, rights.split(","))),
            primary_key=primary_key,
            secondary_key=secondary_key,
            created=datetime.fromisoformat(created),
            modified=datetime.fromisoformat(modified),
        )
    except ValueError as error:
        raise JournalError(f"the stored authorization rule {name!r} cannot be read: {error}") from error


def _dump(value: Any) -> Any:
    if isinstance(value, Enum):
        return {_TYPE: type(value).__name__, "value": value.value}
    if isinstance(value, datetime):
        return {_TYPE: "datetime", "value": value.isoformat()}
    if is_dataclass(value):
        stored = {field.name: _dump(getattr(value, field.name)) for field in fields(value)}
        return {_TYPE: type(value).__name__, **stored}
    if isinstance(value, tuple):
        return [_dump(item) for item in value]
    return value


def _load(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_load(item) for item in value)
    if not isinstance(value, dict):
        return value
    kind = _TYPES[value[_TYPE]]
    if issubclass(kind, Enum):
        return kind(value["value"])
    if issubclass(kind, datetime):
        return datetime.fromisoformat(value["value"])
    return kind(**{name: _load(item) for name, item in value.items() if name != _TYPE})
