"""Descriptions of queues, topics and subscriptions.

Field names, defaults and ranges are those of the Service Bus administration API (Atom over HTTP, api-version
2021-05 and 2024-05). Descriptions are validated on construction. Some lower bounds are relaxed because tests need
small values: lock duration from one tick (service: 5 s), sizes from 1.
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

INT_MAX: Final = 2_147_483_647
"""The largest .NET ``int``; as the maximum delivery count it means "never dead-letter"."""


MIN_DUPLICATE_DETECTION_WINDOW: Final = TimeSpan.of(timedelta(seconds=20))
"""The shortest time for which message ids are remembered."""

_TICK: Final = TimeSpan(1)
_SECOND: Final = TimeSpan.of(timedelta(seconds=1))
_MINUTE: Final = TimeSpan.of(timedelta(minutes=1))
_FIVE_MINUTES: Final = TimeSpan.of(timedelta(minutes=5))
_TEN_MINUTES: Final = TimeSpan.of(timedelta(minutes=10))
_SEVEN_DAYS: Final = TimeSpan.of(timedelta(days=7))
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


def _check_range(entity: Description, field: str, minimum: TimeSpan | int, maximum: TimeSpan | int) -> None:
    value = getattr(entity, field)
    if not minimum <= value <= maximum:
        shown = str(value) if isinstance(value, TimeSpan) else value
        raise DescriptionError(field, value=shown, allowed=f"{minimum} .. {maximum}")


def _check_lifetime(entity: Description) -> None:
    _check_range(entity, "default_message_time_to_live", _SECOND, TimeSpan.MAX)
    _check_range(entity, "auto_delete_on_idle", _FIVE_MINUTES, TimeSpan.MAX)
    if entity.user_metadata is not None and len(entity.user_metadata) > _MAX_METADATA:
        raise DescriptionError(
            "user_metadata", value=f"{len(entity.user_metadata)} characters", allowed=f"at most {_MAX_METADATA}"
        )


def _check_receivable(entity: QueueDescription | SubscriptionDescription) -> None:
    _check_lifetime(entity)
    _check_range(entity, "lock_duration", _TICK, _FIVE_MINUTES)
    _check_range(entity, "max_delivery_count", 1, INT_MAX)


def _check_storage(entity: QueueDescription | TopicDescription) -> None:
    _check_range(entity, "max_size_in_megabytes", 1, 81_920)
    _check_range(entity, "max_message_size_in_kilobytes", 1, 102_400)
    _check_range(entity, "duplicate_detection_history_time_window", MIN_DUPLICATE_DETECTION_WINDOW, _SEVEN_DAYS)


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
