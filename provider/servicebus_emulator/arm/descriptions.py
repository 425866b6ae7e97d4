"""Encodes queues, topics and subscriptions as JSON and decodes them.

The members are those of the models ``SBQueueProperties``, ``SBTopicProperties`` and
``SBSubscriptionProperties`` of azure-mgmt-servicebus 10.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from servicebus_emulator.admin.atom.fields import RuntimeProperties, format_time, property_name, property_types
from servicebus_emulator.arm.errors import camel_case
from servicebus_emulator.arm.json_values import JsonValue
from servicebus_emulator.engine.model.descriptions import (
    FIXED_AT_CREATION,
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_emulator.typed_values import READERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from servicebus_emulator.engine.model.descriptions import MessageCounts

_STORED: Final = (
    "max_size_in_megabytes",
    "max_message_size_in_kilobytes",
    "requires_duplicate_detection",
    "duplicate_detection_history_time_window",
    "enable_partitioning",
    "enable_express",
)
_RECEIVED: Final = (
    "lock_duration",
    "requires_session",
    "dead_lettering_on_message_expiration",
    "max_delivery_count",
    "forward_to",
    "forward_dead_lettered_messages_to",
)
_COMMON: Final = (
    "default_message_time_to_live",
    "auto_delete_on_idle",
    "status",
    "enable_batched_operations",
    "user_metadata",
)
_MEMBERS: Final[Mapping[type[Description], tuple[str, ...]]] = {
    QueueDescription: (*_COMMON, *_RECEIVED, *_STORED),
    TopicDescription: (*_COMMON, *_STORED, "support_ordering"),
    SubscriptionDescription: (*_COMMON, *_RECEIVED, "dead_lettering_on_filter_evaluation_exceptions"),
}
_TIMES: Final = ("createdAt", "updatedAt", "accessedAt")
_READ_ONLY: Final = (*_TIMES, "countDetails", "sizeInBytes", "messageCount", "subscriptionCount")
# Members of a subscription in the model without effect: it neither detects duplicates nor supports JMS clients.
_WINDOW: Final = "duplicateDetectionHistoryTimeWindow"
_IS_AFFINE: Final = "isClientAffine"
_AFFINE: Final = "clientAffineProperties"
_IGNORED: Final[Mapping[type[Description], tuple[str, ...]]] = {
    SubscriptionDescription: (_WINDOW, _IS_AFFINE, _AFFINE),
}


def encode_properties(description: Description, *, runtime: RuntimeProperties) -> dict[str, object]:
    """Return the ``properties`` of an entity, with its runtime properties."""
    document: dict[str, object] = {}
    for name in _MEMBERS[type(description)]:
        value = getattr(description, name)
        if value is not None:
            document[camel_case(name)] = str(value) if isinstance(value, TimeSpan) else value
    times = (runtime.times.created, runtime.times.updated, runtime.times.accessed)
    document |= {name: format_time(time) for name, time in zip(_TIMES, times, strict=True)}
    document["countDetails"] = _encode_counts(runtime.counts)
    if isinstance(description, SubscriptionDescription):
        document[_IS_AFFINE] = False
    else:
        document["sizeInBytes"] = runtime.size_in_bytes
    if isinstance(description, TopicDescription):
        document["subscriptionCount"] = runtime.subscription_count
    else:
        document["messageCount"] = runtime.counts.total
    return document


def decode_description(
    properties: JsonValue | None, *, kind: type[Description], identity: Mapping[str, Any], current: Description | None
) -> Description:
    """Decode the description of an entity.

    The document replaces the current description: omitted properties get their default, except for those fixed at
    creation and those that ARM does not represent (rules, shared access policies).

    :param properties: the ``properties`` of the document; None = it has none.
    :param identity: attributes that are not in the document.
    :param current: the existing entity; None = it is created.
    :raises ArmError, DescriptionError: a property has a value that is not allowed.
    """
    names = {camel_case(name): name for name in _MEMBERS[kind]}
    given = {} if properties is None else properties.members(*names, *_IGNORED.get(kind, ()), *_READ_ONLY)
    _check_ignored(given, kind=kind)
    types = property_types(kind)
    replaced = frozenset(_MEMBERS[kind]).difference(FIXED_AT_CREATION)
    stays = [] if current is None else [each.name for each in fields(kind) if each.name not in replaced]
    kept = {name: getattr(current, name) for name in stays}
    values = {
        name: READERS[types[property_name(name)][1]](given[member]) for member, name in names.items() if member in given
    }
    return kind(**{**kept, **values, **identity})


def _check_ignored(given: Mapping[str, JsonValue], *, kind: type[Description]) -> None:
    if _WINDOW in given and _WINDOW in _IGNORED.get(kind, ()):
        given[_WINDOW].duration()
    if _IS_AFFINE in given and given[_IS_AFFINE].boolean():
        given[_IS_AFFINE].refuse("false; subscriptions of JMS clients are not supported")
    if _AFFINE in given:
        given[_AFFINE].refuse("null; subscriptions of JMS clients are not supported")


def _encode_counts(counts: MessageCounts) -> dict[str, int]:
    return {
        "activeMessageCount": counts.active,
        "deadLetterMessageCount": counts.dead_lettered,
        "scheduledMessageCount": counts.scheduled,
        "transferMessageCount": counts.transfer,
        "transferDeadLetterMessageCount": counts.transfer_dead_lettered,
    }
