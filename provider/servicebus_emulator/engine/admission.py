"""Which messages an entity takes in, and whether it gives any out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from servicebus_emulator.engine.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from servicebus_emulator.engine.errors import (
    BrokerError,
    EntityDisabled,
    MessageTooLarge,
    OperationNotAllowed,
    QuotaExceeded,
)
from servicebus_emulator.engine.message import Content, total_size

__all__ = [
    "admit",
    "batch_limit",
    "check_size",
    "enlarged",
    "link_obstacle",
    "message_limit",
    "receive_obstacle",
    "request_limit",
]

_KILOBYTE = 1024
_Described = TypeVar("_Described", QueueDescription, TopicDescription)
_MEGABYTE = 1024 * 1024


def message_limit(description: QueueDescription | TopicDescription) -> int:
    """Return how large an encoded message may be, in bytes."""
    return description.max_message_size_in_kilobytes * _KILOBYTE


def batch_limit(description: QueueDescription | TopicDescription) -> int:
    """Return how large an encoded batch may be, in bytes: 1 MB at most, however large a single message may be."""
    return min(message_limit(description), _MEGABYTE)


def request_limit(description: QueueDescription | TopicDescription | SubscriptionDescription) -> int:
    """Return how large a request about an entity may be, in bytes: one may schedule its largest message or batch."""
    largest = 0 if isinstance(description, SubscriptionDescription) else message_limit(description)
    return max(largest, _MEGABYTE) + _MEGABYTE


def enlarged(description: _Described, *, kilobytes: int) -> _Described:
    """Return the description of an entity that takes messages of at least so many kilobytes."""
    if description.max_message_size_in_kilobytes >= kilobytes:
        return description
    return replace(description, max_message_size_in_kilobytes=kilobytes)


def check_size(size: int, *, messages: int, description: QueueDescription | TopicDescription) -> None:
    """Check the encoded size of what one transfer holds.

    :param messages: how many messages it holds.
    :raises MessageTooLarge: when it exceeds the entity's limit.
    """
    kind, limit = ("batch", batch_limit(description)) if messages > 1 else ("message", message_limit(description))
    if size > limit:
        raise MessageTooLarge(f"a {kind} of {size} bytes was sent to {description.path!r}; allowed: {limit} bytes")


def admit(contents: Sequence[Content], *, description: QueueDescription | TopicDescription, size_in_bytes: int) -> None:
    """Check that an entity takes all of these messages; it takes all or none.

    :param size_in_bytes: what the entity holds now.
    :raises EntityDisabled: when its status forbids sending.
    :raises OperationNotAllowed: when it requires sessions and a message names none.
    :raises QuotaExceeded: when the messages do not fit into its maximum size.
    """
    if not description.status.accepts_sends:
        raise EntityDisabled(
            f"{description.path!r} has status {description.status.value} and accepts no messages; set it to Active"
        )
    if isinstance(description, QueueDescription) and description.requires_session:
        for position, content in enumerate(contents):
            if content.session_id is None:
                raise OperationNotAllowed(
                    f"message {position} of {len(contents)} has no session id, and {description.path!r} requires one"
                )
    limit = description.max_size_in_megabytes * _MEGABYTE
    arriving = total_size(contents)
    if size_in_bytes + arriving > limit:
        raise QuotaExceeded(
            f"{description.path!r} holds {size_in_bytes} bytes and cannot take {arriving} more; allowed: {limit}"
        )


def receive_obstacle(description: QueueDescription | SubscriptionDescription) -> BrokerError | None:
    """Return why nothing may be received, browsed or accepted from an entity, its sub-queues included."""
    if description.status.accepts_receives:
        return None
    return EntityDisabled(
        f"{description.path!r} has status {description.status.value} and gives out no messages; set it to Active"
    )


def link_obstacle(description: QueueDescription | SubscriptionDescription, *, sub_queue: bool) -> BrokerError | None:
    """Return why no receiver can be linked to an entity, or to one of its sub-queues."""
    if description.forward_to is not None and not sub_queue:
        return OperationNotAllowed(
            f"{description.path!r} forwards its messages to {description.forward_to!r}; receive them there"
        )
    return receive_obstacle(description)
