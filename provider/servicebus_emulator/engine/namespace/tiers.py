"""What the service changes in a description before it applies it, and what its tiers accept.

Sizes and features are those of "Service Bus quotas" and "Service Bus premium and standard messaging tiers" (Microsoft
Learn). Without a tier everything is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from servicebus_emulator.engine.model.descriptions import (
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.entity_names import DescriptionError
from servicebus_emulator.engine.model.timespan import TimeSpan

_PARTITIONS: Final = 16
_MAX_MEGABYTES: Final = 5120
_DEFAULT_KILOBYTES: Final = 256


class Tier(StrEnum):
    """The tier of a namespace."""

    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offer:
    """What a tier accepts: ranges of sizes, and the features (fields that are true or given) that it lacks."""

    kilobytes: tuple[int, int]
    megabytes: int
    lacks: tuple[str, ...]


_OFFERS: Final = {
    Tier.BASIC: _Offer(
        kilobytes=(_DEFAULT_KILOBYTES, _DEFAULT_KILOBYTES),
        megabytes=_MAX_MEGABYTES,
        lacks=(
            "requires_session",
            "requires_duplicate_detection",
            "forward_to",
            "forward_dead_lettered_messages_to",
        ),
    ),
    Tier.STANDARD: _Offer(kilobytes=(_DEFAULT_KILOBYTES, _DEFAULT_KILOBYTES), megabytes=_MAX_MEGABYTES, lacks=()),
    Tier.PREMIUM: _Offer(
        kilobytes=(1024, 102_400),
        megabytes=_MAX_MEGABYTES * _PARTITIONS,
        lacks=("enable_partitioning", "enable_express"),
    ),
}


def adjusted(description: Description, *, before: Description | None, tier: Tier | None) -> Description:
    """Return a description as the service keeps it.

    A subscription that forwards its messages is never deleted for being idle. A partitioned entity has 16 times the
    requested size. The message limit of Premium begins where that of the other tiers ends.

    :param before: the entity's description so far; None = it is created.
    """
    if isinstance(description, SubscriptionDescription):
        return description if description.forward_to is None else replace(description, auto_delete_on_idle=TimeSpan.MAX)
    size = description.max_size_in_megabytes
    # Clients repeat the size that they were shown.
    is_shown = not isinstance(before, QueueDescription | TopicDescription) or before.max_size_in_megabytes != size
    if description.enable_partitioning and size <= _MAX_MEGABYTES and is_shown:
        description = replace(description, max_size_in_megabytes=size * _PARTITIONS)
    if tier is Tier.PREMIUM and description.max_message_size_in_kilobytes == _DEFAULT_KILOBYTES:
        return replace(description, max_message_size_in_kilobytes=_OFFERS[tier].kilobytes[0])
    return description


def check_tier(description: Description, *, tier: Tier | None) -> None:
    """Check that a tier offers what a description asks for; sizes are those before :func:`adjusted`.

    :raises DescriptionError: when it does not.
    """
    if tier is None:
        return
    offer, where = _OFFERS[tier], f"in the {tier} tier"
    if tier is Tier.BASIC and not isinstance(description, QueueDescription):
        raise DescriptionError("topic", value=description.path, allowed=f"queues only {where}")
    for name in offer.lacks:
        value = getattr(description, name, None)
        if value not in (None, False):
            raise DescriptionError(name, value=value, allowed=f"none {where}")
    if isinstance(description, SubscriptionDescription):
        return
    least, most = offer.kilobytes
    kilobytes = description.max_message_size_in_kilobytes
    if kilobytes != _DEFAULT_KILOBYTES and not least <= kilobytes <= most:
        raise DescriptionError("max_message_size_in_kilobytes", value=kilobytes, allowed=f"{least} .. {most} {where}")
    largest = offer.megabytes * (_PARTITIONS if description.enable_partitioning else 1)
    if description.max_size_in_megabytes > largest:
        raise DescriptionError(
            "max_size_in_megabytes", value=description.max_size_in_megabytes, allowed=f"1 .. {largest} {where}"
        )
