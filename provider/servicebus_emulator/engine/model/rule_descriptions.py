"""Descriptions of subscription rules: filters and actions."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import datetime
from typing import Final

from servicebus_emulator.engine.model.entity_names import check_name
from servicebus_emulator.engine.model.timespan import TimeSpan

DEFAULT_RULE_NAME: Final = "$Default"

FilterValue = str | int | float | bool | datetime | TimeSpan
"""A value that a filter compares with an application property."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlFilter:
    """A SQL filter. The service represents the true and false filters as the expressions ``1=1`` and ``1=0``."""

    expression: str
    parameters: tuple[tuple[str, FilterValue], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrelationFilter:
    """A filter by equality of system and application properties."""

    correlation_id: str | None = None
    message_id: str | None = None
    to: str | None = None
    reply_to: str | None = None
    label: str | None = None
    session_id: str | None = None
    reply_to_session_id: str | None = None
    content_type: str | None = None
    properties: tuple[tuple[str, FilterValue], ...] = ()


RuleFilter = SqlFilter | CorrelationFilter

CORRELATION_PROPERTIES: Final = tuple(each.name for each in fields(CorrelationFilter) if each.name != "properties")
"""The system properties that a correlation filter compares."""

TRUE_FILTER: Final = SqlFilter(expression="1=1")
FALSE_FILTER: Final = SqlFilter(expression="1=0")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlAction:
    """A change to the properties of messages that match the rule's filter."""

    expression: str
    parameters: tuple[tuple[str, FilterValue], ...] = ()


@dataclass(frozen=True, slots=True)
class RuleDescription:
    """A named filter of a subscription, with an optional action.

    :raises DescriptionError: when the name is invalid (see :func:`check_name`).
    """

    name: str = DEFAULT_RULE_NAME
    filter: RuleFilter = TRUE_FILTER
    action: SqlAction | None = None

    def __post_init__(self) -> None:
        if self.name != DEFAULT_RULE_NAME:
            check_name("name", value=self.name)

    @property
    def matches_all(self) -> bool:
        """Whether every message matches and is left unchanged."""
        return self.action is None and self.filter == TRUE_FILTER


DEFAULT_RULE: Final = RuleDescription()
