"""The elements of entity descriptions in the administration API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from servicebus_emulator.engine.model.descriptions import (
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

ELEMENTS: Final[Mapping[type[Description], tuple[str, ...]]] = {
    QueueDescription: (
        "LockDuration",
        "MaxSizeInMegabytes",
        "RequiresDuplicateDetection",
        "RequiresSession",
        "DefaultMessageTimeToLive",
        "DeadLetteringOnMessageExpiration",
        "DuplicateDetectionHistoryTimeWindow",
        "MaxDeliveryCount",
        "EnableBatchedOperations",
        "SizeInBytes",
        "MessageCount",
        "IsAnonymousAccessible",
        "AuthorizationRules",
        "Status",
        "ForwardTo",
        "UserMetadata",
        "CreatedAt",
        "UpdatedAt",
        "AccessedAt",
        "SupportOrdering",
        "CountDetails",
        "AutoDeleteOnIdle",
        "EnablePartitioning",
        "EntityAvailabilityStatus",
        "EnableExpress",
        "ForwardDeadLetteredMessagesTo",
        "MaxMessageSizeInKilobytes",
    ),
    TopicDescription: (
        "DefaultMessageTimeToLive",
        "MaxSizeInMegabytes",
        "RequiresDuplicateDetection",
        "DuplicateDetectionHistoryTimeWindow",
        "EnableBatchedOperations",
        "SizeInBytes",
        "FilteringMessagesBeforePublishing",
        "IsAnonymousAccessible",
        "AuthorizationRules",
        "Status",
        "UserMetadata",
        "CreatedAt",
        "UpdatedAt",
        "AccessedAt",
        "SupportOrdering",
        "CountDetails",
        "SubscriptionCount",
        "SqlFilterCount",
        "CorrelationFilterCount",
        "AutoDeleteOnIdle",
        "EnablePartitioning",
        "EntityAvailabilityStatus",
        "EnableSubscriptionPartitioning",
        "EnableExpress",
        "MaxMessageSizeInKilobytes",
    ),
    SubscriptionDescription: (
        "LockDuration",
        "RequiresSession",
        "DefaultMessageTimeToLive",
        "DeadLetteringOnMessageExpiration",
        "DeadLetteringOnFilterEvaluationExceptions",
        "MessageCount",
        "MaxDeliveryCount",
        "EnableBatchedOperations",
        "Status",
        "ForwardTo",
        "CreatedAt",
        "UpdatedAt",
        "AccessedAt",
        "CountDetails",
        "UserMetadata",
        "ForwardDeadLetteredMessagesTo",
        "AutoDeleteOnIdle",
        "EntityAvailabilityStatus",
        "IsClientAffine",
    ),
}
"""The elements of each description, in the order in which the service writes them."""

READ_ONLY: Final = frozenset(
    [
        "SizeInBytes",
        "MessageCount",
        "CreatedAt",
        "UpdatedAt",
        "AccessedAt",
        "CountDetails",
        "MessageCountDetails",
        "SubscriptionCount",
        "SqlFilterCount",
        "CorrelationFilterCount",
        "EntityAvailabilityStatus",
        "IsClientAffine",
    ]
)
"""Elements that only the service sets. Clients return them when they update an entity; they are ignored."""

SINCE: Final[Mapping[str, str]] = {
    "MaxMessageSizeInKilobytes": "2021-05",
    "IsClientAffine": "2021-05",
    "SqlFilterCount": "2024-05",
    "CorrelationFilterCount": "2024-05",
}
"""The api-version that introduced an element; earlier ones neither accept nor return it."""
