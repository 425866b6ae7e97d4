"""What an entity is: the descriptions of queues, topics, subscriptions and rules.

Field names, defaults and ranges are those of the Service Bus administration API (Atom over HTTP,
api-version 2021-05 and 2024-05). A description is checked when it is made. Its lower bounds are wider
where tests need small values: locks from one tick (the service: 5 s), duplicate detection from 5 s, as
in Microsoft's emulator (the service: 20 s), sizes from 1.
"""

from __future__ import annotations

import re
from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

from servicebus_emulator.engine.timespan import TimeSpan

__all__ = [
    "DEFAULT_RULE",
    "DEFAULT_RULE_NAME",
    "INT_MAX",
    "NOT_IN_XML",
    "AccessRight",
    "AuthorizationRule",
    "CorrelationFilter",
    "Description",
    "DescriptionError",
    "EntityStatus",
    "FilterValue",
    "MessageCounts",
    "QueueDescription",
    "RuleDescription",
    "RuleFilter",
    "SqlAction",
    "SqlFilter",
    "SubscriptionDescription",
    "TopicDescription",
    "check_entity_path",
    "check_name",
    "check_update",
    "entity_path_of",
]

INT_MAX: Final = 2_147_483_647
"""The largest .NET ``int``: the delivery count that never dead-letters."""


class DescriptionError(ValueError):
    """A description holds a value that is not allowed.

    :ivar field: the field at fault, in the spelling of this package.
    :ivar value: the refused value.
    :ivar allowed: what is allowed instead.
    """

    def __init__(self, field: str, *, value: object, allowed: str) -> None:
        super().__init__(f"{field} is {value!r}; allowed: {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed


_SECOND: Final = TimeSpan.of(timedelta(seconds=1))
_MINUTE: Final = TimeSpan.of(timedelta(minutes=1))
_TEN_MINUTES: Final = TimeSpan.of(timedelta(minutes=10))
_TICK: Final = TimeSpan(1)


class EntityStatus(StrEnum):
    """Whether an entity takes part in messaging, and in which direction."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"

    @property
    def accepts_sends(self) -> bool:
        """Whether messages may be sent to the entity."""
        return self in {EntityStatus.ACTIVE, EntityStatus.RECEIVE_DISABLED}

    @property
    def accepts_receives(self) -> bool:
        """Whether messages may be received from the entity."""
        return self in {EntityStatus.ACTIVE, EntityStatus.SEND_DISABLED}


class AccessRight(StrEnum):
    """What an authorization rule permits."""

    MANAGE = "Manage"
    SEND = "Send"
    LISTEN = "Listen"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationRule:
    """A shared access rule of an entity; its keys never appear in ``repr``."""

    type: str = "SharedAccessAuthorizationRule"
    claim_type: str = "SharedAccessKey"
    claim_value: str = "None"
    rights: tuple[AccessRight, ...] = ()
    created_time: datetime | None = None
    modified_time: datetime | None = None
    key_name: str | None = None
    primary_key: str | None = field(default=None, repr=False)
    secondary_key: str | None = field(default=None, repr=False)


FilterValue = str | int | float | bool | datetime | TimeSpan
"""A value that a filter compares with an application property."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlFilter:
    """A filter by SQL expression. The service stores "all" and "none" as the expressions ``1=1`` and ``1=0``."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlAction:
    """A change made to a message that a filter let through."""

    expression: str
    parameters: tuple[tuple[str, FilterValue], ...] = ()


DEFAULT_RULE_NAME: Final = "$Default"


@dataclass(frozen=True, slots=True)
class RuleDescription:
    """A named filter of a subscription, with an optional action.

    :raises DescriptionError: when the name breaks the rules of :func:`check_name`.
    """

    name: str = DEFAULT_RULE_NAME
    filter: RuleFilter = SqlFilter(expression="1=1")
    action: SqlAction | None = None

    def __post_init__(self) -> None:
        if self.name != DEFAULT_RULE_NAME:
            check_name("name", value=self.name)

    @property
    def matches_all(self) -> bool:
        """Whether every message passes unchanged."""
        return self.action is None and self.filter == SqlFilter(expression="1=1")


DEFAULT_RULE: Final = RuleDescription()


@dataclass(frozen=True, slots=True)
class MessageCounts:
    """How many messages an entity holds, by where they wait.

    Deferred messages have no counter of their own in the API: the service counts them as active.
    """

    active: int = 0
    scheduled: int = 0
    dead_lettered: int = 0
    transfer: int = 0
    transfer_dead_lettered: int = 0

    @property
    def total(self) -> int:
        """All messages together: the API's ``MessageCount``."""
        return self.active + self.scheduled + self.dead_lettered + self.transfer + self.transfer_dead_lettered


@dataclass(frozen=True, slots=True)
class QueueDescription:
    """A queue.

    :param path: the queue's path: 1 to 260 characters, may contain ``/``, compared without case.
    :raises DescriptionError: naming the field, its value and what is allowed.
    """

    path: str
    _: KW_ONLY
    lock_duration: TimeSpan = _MINUTE
    max_size_in_megabytes: int = 1024
    requires_duplicate_detection: bool = False
    requires_session: bool = False
    default_message_time_to_live: TimeSpan = TimeSpan.MAX
    dead_lettering_on_message_expiration: bool = False
    duplicate_detection_history_time_window: TimeSpan = _TEN_MINUTES
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    is_anonymous_accessible: bool = False
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    status: EntityStatus = EntityStatus.ACTIVE
    support_ordering: bool = True
    auto_delete_on_idle: TimeSpan = TimeSpan.MAX
    enable_partitioning: bool = False
    enable_express: bool = False
    forward_to: str | None = None
    user_metadata: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    max_message_size_in_kilobytes: int = 256

    def __post_init__(self) -> None:
        check_entity_path("path", value=self.path)
        _check_receivable(self)
        _check_storage(self)
        _check_forwarding(self)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic.

    :param path: the topic's path: 1 to 260 characters, may contain ``/``, compared without case.
    :raises DescriptionError: naming the field, its value and what is allowed.
    """

    path: str
    _: KW_ONLY
    default_message_time_to_live: TimeSpan = TimeSpan.MAX
    max_size_in_megabytes: int = 1024
    requires_duplicate_detection: bool = False
    duplicate_detection_history_time_window: TimeSpan = _TEN_MINUTES
    enable_batched_operations: bool = True
    filtering_messages_before_publishing: bool = False
    is_anonymous_accessible: bool = False
    authorization_rules: tuple[AuthorizationRule, ...] = ()
    status: EntityStatus = EntityStatus.ACTIVE
    support_ordering: bool = True
    auto_delete_on_idle: TimeSpan = TimeSpan.MAX
    enable_partitioning: bool = False
    enable_subscription_partitioning: bool = False
    enable_express: bool = False
    user_metadata: str | None = None
    max_message_size_in_kilobytes: int = 256

    def __post_init__(self) -> None:
        check_entity_path("path", value=self.path)
        _check_lifetime(self)
        _check_storage(self)


@dataclass(frozen=True, slots=True)
class SubscriptionDescription:
    """A subscription of a topic.

    :param topic_path: the path of its topic.
    :param name: the subscription's name: 1 to 50 characters without ``/``, compared without case.
    :raises DescriptionError: naming the field, its value and what is allowed.
    """

    topic_path: str
    name: str
    _: KW_ONLY
    lock_duration: TimeSpan = _MINUTE
    requires_session: bool = False
    default_message_time_to_live: TimeSpan = TimeSpan.MAX
    dead_lettering_on_message_expiration: bool = False
    dead_lettering_on_filter_evaluation_exceptions: bool = True
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    status: EntityStatus = EntityStatus.ACTIVE
    forward_to: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    auto_delete_on_idle: TimeSpan = TimeSpan.MAX
    user_metadata: str | None = None
    rules: tuple[RuleDescription, ...] = (DEFAULT_RULE,)

    def __post_init__(self) -> None:
        check_entity_path("topic_path", value=self.topic_path)
        check_name("name", value=self.name)
        _check_receivable(self)
        _check_forwarding(self)
        names = [rule.name.casefold() for rule in self.rules]
        if len(set(names)) != len(names):
            raise DescriptionError("rules", value=[rule.name for rule in self.rules], allowed="each rule name once")

    @property
    def path(self) -> str:
        """The address that receivers use: ``topic/Subscriptions/name``."""
        return f"{self.topic_path}/Subscriptions/{self.name}"


Description = QueueDescription | TopicDescription | SubscriptionDescription
"""What stands behind a path."""

NOT_IN_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""A character that the administration API cannot carry."""

_MAX_PATH: Final = 260
_MAX_NAME: Final = 50
_MAX_METADATA: Final = 1024
_PATH_RULE: Final = (
    "1 to 260 characters without @ ? # * \\ or control characters; segments separated by single '/',"
    " none beginning with '$', none of them 'subscriptions'"
)
_NAME_RULE: Final = "1 to 50 characters without / @ ? # * \\ or control characters, not beginning with '$'"
_FORBIDDEN: Final = re.compile(r"[@?#*\\\x00-\x1f\x7f]")


def check_entity_path(field: str, *, value: str) -> None:
    """Check the path of a queue or topic (service quota: 260 characters).

    :param field: the name under which a fault is reported.
    :raises DescriptionError: when `value` is no path a queue or topic can have.
    """
    segments = value.split("/")
    if (
        len(value) > _MAX_PATH
        or _FORBIDDEN.search(value) is not None
        or any(segment.strip() == "" or segment.startswith("$") for segment in segments)
        or "subscriptions" in (segment.casefold() for segment in segments)
    ):
        raise DescriptionError(field, value=value[: _MAX_PATH + 1], allowed=_PATH_RULE)


def check_name(field: str, *, value: str) -> None:
    """Check the name of a subscription or rule (service quota: 50 characters).

    :param field: the name under which a fault is reported.
    :raises DescriptionError: when `value` is no name a subscription or rule can have.
    """
    if (
        value.strip() == ""
        or len(value) > _MAX_NAME
        or value.startswith("$")
        or "/" in value
        or _FORBIDDEN.search(value) is not None
    ):
        raise DescriptionError(field, value=value[: _MAX_NAME + 1], allowed=_NAME_RULE)


def entity_path_of(address: str) -> str:
    """Return the entity path of a forwarding address: a bare path, or a URL such as ``sb://host/path``."""
    return urlsplit(address).path.strip("/") if "://" in address else address.strip("/")


def check_update(
    current: Description,
    *,
    proposed: Description,
) -> None:
    """Check that an update leaves alone what is fixed when an entity is created.

    :raises DescriptionError: when a field that cannot be changed differs.
    """
    for name in ("requires_session", "requires_duplicate_detection", "enable_partitioning"):
        now, then = getattr(current, name, None), getattr(proposed, name, None)
        if now != then:
            allowed = f"{now!r}, as at creation; to change it, delete the entity and create it anew"
            raise DescriptionError(name, value=then, allowed=allowed)


def _check_span(field: str, *, value: TimeSpan, least: TimeSpan, most: TimeSpan) -> None:
    if not least <= value <= most:
        raise DescriptionError(field, value=str(value), allowed=f"{least} .. {most}")


def _check_number(field: str, *, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise DescriptionError(field, value=value, allowed=f"{least} .. {most}")


def _check_lifetime(entity: Description) -> None:
    _check_span(
        "default_message_time_to_live",
        value=entity.default_message_time_to_live,
        least=_SECOND,
        most=TimeSpan.MAX,
    )
    _check_span(
        "auto_delete_on_idle", value=entity.auto_delete_on_idle, least=TimeSpan(5 * _MINUTE.ticks), most=TimeSpan.MAX
    )
    if entity.user_metadata is not None and len(entity.user_metadata) > _MAX_METADATA:
        raise DescriptionError(
            "user_metadata", value=f"{len(entity.user_metadata)} characters", allowed=f"at most {_MAX_METADATA}"
        )


def _check_receivable(entity: QueueDescription | SubscriptionDescription) -> None:
    _check_lifetime(entity)
    _check_span("lock_duration", value=entity.lock_duration, least=_TICK, most=TimeSpan(5 * _MINUTE.ticks))
    _check_number("max_delivery_count", value=entity.max_delivery_count, least=1, most=INT_MAX)


def _check_storage(entity: QueueDescription | TopicDescription) -> None:
    _check_number("max_size_in_megabytes", value=entity.max_size_in_megabytes, least=1, most=81_920)
    _check_number("max_message_size_in_kilobytes", value=entity.max_message_size_in_kilobytes, least=1, most=102_400)
    _check_span(
        "duplicate_detection_history_time_window",
        value=entity.duplicate_detection_history_time_window,
        least=TimeSpan(5 * _SECOND.ticks),
        most=TimeSpan.of(timedelta(days=7)),
    )


def _check_forwarding(entity: QueueDescription | SubscriptionDescription) -> None:
    """Check addresses.

    As at the service, an entity may name itself, and one that requires sessions may name a target, although
    nothing is forwarded from it ("Chaining Service Bus entities with autoforwarding").
    """
    for name, address in (
        ("forward_to", entity.forward_to),
        ("forward_dead_lettered_messages_to", entity.forward_dead_lettered_messages_to),
    ):
        if address is not None:
            check_entity_path(name, value=entity_path_of(address))
