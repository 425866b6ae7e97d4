"""Descriptions of queues, topics and subscriptions.

Field names, defaults and ranges are those of the Service Bus administration API (Atom over HTTP, api-version
2021-05 and 2024-05). Descriptions are validated on construction. Some lower bounds are relaxed because tests need
small values: lock duration from one tick (service: 5 s), duplicate detection window from 5 s as in Microsoft's
emulator (service: 20 s), sizes from 1.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from servicebus_emulator.engine.model.entity_names import (
    DescriptionError,
    check_entity_path,
    check_name,
    entity_path_of,
)
from servicebus_emulator.engine.model.rule_descriptions import DEFAULT_RULE, RuleDescription
from servicebus_emulator.engine.model.timespan import TimeSpan

__all__ = [
    "FIXED_AT_CREATION",
    "IDENTITY",
    "INT_MAX",
    "AccessRight",
    "AuthorizationRule",
    "Description",
    "EntityStatus",
    "MessageCounts",
    "QueueDescription",
    "SubscriptionDescription",
    "TopicDescription",
    "check_update",
    "entity_label",
]

INT_MAX: Final = 2_147_483_647
"""The largest .NET ``int``; as the maximum delivery count it means "never dead-letter"."""


_SECOND: Final = TimeSpan.of(timedelta(seconds=1))
_MINUTE: Final = TimeSpan.of(timedelta(minutes=1))
_TEN_MINUTES: Final = TimeSpan.of(timedelta(minutes=10))
_TICK: Final = TimeSpan(1)
_MAX_METADATA: Final = 1024


class EntityStatus(StrEnum):
    """Whether an entity accepts sends and receives."""

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
    """A right that an authorization rule grants."""

    MANAGE = "Manage"
    SEND = "Send"
    LISTEN = "Listen"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationRule:
    """A shared access authorization rule of an entity. Its keys do not appear in ``repr``."""

    type: str = "SharedAccessAuthorizationRule"
    claim_type: str = "SharedAccessKey"
    claim_value: str = "None"
    rights: tuple[AccessRight, ...] = ()
    created_time: datetime | None = None
    modified_time: datetime | None = None
    key_name: str | None = None
    primary_key: str | None = field(default=None, repr=False)
    secondary_key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class MessageCounts:
    """The number of messages in an entity, by state.

    As at the service, deferred messages count as active.
    """

    active: int = 0
    scheduled: int = 0
    dead_lettered: int = 0
    transfer: int = 0
    transfer_dead_lettered: int = 0

    @property
    def total(self) -> int:
        """The total, the API's ``MessageCount``."""
        return self.active + self.scheduled + self.dead_lettered + self.transfer + self.transfer_dead_lettered


@dataclass(frozen=True, slots=True)
class QueueDescription:
    """A queue.

    :param path: the queue's path: 1 to 260 characters, may contain ``/``, case-insensitive.
    :raises DescriptionError: when a field has an invalid value.
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

    :param path: the topic's path: 1 to 260 characters, may contain ``/``, case-insensitive.
    :raises DescriptionError: when a field has an invalid value.
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
    :param name: the subscription's name: 1 to 50 characters without ``/``, case-insensitive.
    :raises DescriptionError: when a field has an invalid value.
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

    def find_rule(self, name: str) -> RuleDescription | None:
        """Return the rule of a name, which is case-insensitive, or None."""
        folded = name.casefold()
        return next((rule for rule in self.rules if rule.name.casefold() == folded), None)


Description = QueueDescription | TopicDescription | SubscriptionDescription
"""Any entity that has a path."""

IDENTITY: Final = frozenset({"path", "topic_path", "name"})
"""The fields that together name an entity."""

FIXED_AT_CREATION: Final = ("requires_session", "requires_duplicate_detection", "enable_partitioning")
"""The fields that an update cannot change."""


def entity_label(description: Description) -> str:
    """Return the kind and path of an entity for messages, such as ``queue flights``."""
    return f"{type(description).__name__.removesuffix('Description').lower()} {description.path}"


def check_update(current: Description, *, proposed: Description) -> None:
    """Check that an update does not change a field that is fixed at creation.

    :raises DescriptionError: when such a field differs.
    """
    for name in FIXED_AT_CREATION:
        old, new = getattr(current, name, None), getattr(proposed, name, None)
        if old != new:
            allowed = f"{old!r}, as set at creation; to change it, delete and recreate the entity"
            raise DescriptionError(name, value=new, allowed=allowed)


def _check_span(field: str, *, value: TimeSpan, minimum: TimeSpan, maximum: TimeSpan) -> None:
    if not minimum <= value <= maximum:
        raise DescriptionError(field, value=str(value), allowed=f"{minimum} .. {maximum}")


def _check_number(field: str, *, value: int, minimum: int, maximum: int) -> None:
    if not minimum <= value <= maximum:
        raise DescriptionError(field, value=value, allowed=f"{minimum} .. {maximum}")


def _check_lifetime(entity: Description) -> None:
    _check_span(
        "default_message_time_to_live",
        value=entity.default_message_time_to_live,
        minimum=_SECOND,
        maximum=TimeSpan.MAX,
    )
    _check_span(
        "auto_delete_on_idle",
        value=entity.auto_delete_on_idle,
        minimum=TimeSpan(5 * _MINUTE.ticks),
        maximum=TimeSpan.MAX,
    )
    if entity.user_metadata is not None and len(entity.user_metadata) > _MAX_METADATA:
        raise DescriptionError(
            "user_metadata", value=f"{len(entity.user_metadata)} characters", allowed=f"at most {_MAX_METADATA}"
        )


def _check_receivable(entity: QueueDescription | SubscriptionDescription) -> None:
    _check_lifetime(entity)
    _check_span("lock_duration", value=entity.lock_duration, minimum=_TICK, maximum=TimeSpan(5 * _MINUTE.ticks))
    _check_number("max_delivery_count", value=entity.max_delivery_count, minimum=1, maximum=INT_MAX)


def _check_storage(entity: QueueDescription | TopicDescription) -> None:
    _check_number("max_size_in_megabytes", value=entity.max_size_in_megabytes, minimum=1, maximum=81_920)
    _check_number(
        "max_message_size_in_kilobytes", value=entity.max_message_size_in_kilobytes, minimum=1, maximum=102_400
    )
    _check_span(
        "duplicate_detection_history_time_window",
        value=entity.duplicate_detection_history_time_window,
        minimum=TimeSpan(5 * _SECOND.ticks),
        maximum=TimeSpan.of(timedelta(days=7)),
    )


def _check_forwarding(entity: QueueDescription | SubscriptionDescription) -> None:
    """Check the forwarding addresses.

    As at the service, an entity may forward to itself, and one that requires sessions may have a target although
    nothing is forwarded from it ("Chaining Service Bus entities with autoforwarding").
    """
    for name, address in (
        ("forward_to", entity.forward_to),
        ("forward_dead_lettered_messages_to", entity.forward_dead_lettered_messages_to),
    ):
        if address is not None:
            check_entity_path(name, value=entity_path_of(address))
