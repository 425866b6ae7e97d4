"""Lossless JSON serialization of entity descriptions, and rows of shared access policies."""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final

from servicebus_emulator.engine.model import descriptions, rule_descriptions
from servicebus_emulator.engine.model.access_policy import SharedAccessPolicy
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_emulator.engine.runtime.journal import JournalError

_TYPE: Final = "$type"
_WINDOW: Final = "duplicate_detection_history_time_window"
# The class names are part of the file format.
_TYPES: Final[dict[str, type[Any]]] = {
    each.__name__: each
    for each in (
        descriptions.AccessRight,
        descriptions.AuthorizationRule,
        descriptions.EntityStatus,
        descriptions.QueueDescription,
        descriptions.SubscriptionDescription,
        descriptions.TopicDescription,
        rule_descriptions.CorrelationFilter,
        rule_descriptions.RuleDescription,
        rule_descriptions.SqlAction,
        rule_descriptions.SqlFilter,
        TimeSpan,
        datetime,
    )
}


def dump_description(description: descriptions.Description) -> str:
    """Return a description as JSON in which every object carries its type."""
    return json.dumps(_dump(description), ensure_ascii=False)


def load_description(text: str) -> descriptions.Description:
    """Parse the output of :func:`dump_description`. Missing fields get their defaults.

    :raises JournalError: when it is not a description of this version or an older one.
    """
    try:
        description = _load(json.loads(text))
    except (KeyError, TypeError, ValueError) as error:
        raise JournalError(f"a stored description cannot be read: {error}") from error
    if not isinstance(description, descriptions.Description):
        raise JournalError(f"a stored description is a {type(description).__name__}")
    return description


def dump_access_policy(policy: SharedAccessPolicy) -> tuple[str, str, str, str, str, str]:
    """Return a shared access policy as a table row."""
    rights = ",".join(policy.ordered_rights)
    created, modified = policy.created.isoformat(), policy.modified.isoformat()
    return policy.name, rights, policy.primary_key, policy.secondary_key, created, modified


def load_access_policy(row: tuple[str, str, str, str, str, str]) -> SharedAccessPolicy:
    """Parse the output of :func:`dump_access_policy`.

    :raises JournalError: when it is not a policy of this version or an older one.
    """
    name, rights, primary_key, secondary_key, created, modified = row
    try:
        ordered = tuple(map(descriptions.AccessRight, rights.split(",")))
        return SharedAccessPolicy(
            name=name,
            rights=frozenset(ordered),
            ordered_rights=ordered,
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
        members = {field.name: _dump(getattr(value, field.name)) for field in fields(value)}
        return {_TYPE: type(value).__name__, **members}
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
    members = {name: _load(item) for name, item in value.items() if name != _TYPE}
    if _WINDOW in members:
        # Files of older versions may have a window below what the service allows.
        members[_WINDOW] = max(members[_WINDOW], descriptions.MIN_DUPLICATE_DETECTION_WINDOW)
    return kind(**members)
