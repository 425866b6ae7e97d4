"""Quotas and status checks: which messages an entity accepts, and whether it can be received from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from servicebus_emulator.engine.model.descriptions import (
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.errors import (
    BrokerError,
    EntityDisabled,
    MessageTooLarge,
    OperationNotAllowed,
    QuotaExceeded,
)
from servicebus_emulator.engine.model.message import Content, total_size

_KILOBYTE = 1024
_MEGABYTE = 1024 * 1024


def max_message_bytes(description: QueueDescription | TopicDescription) -> int:
    """Return the maximum size of an encoded message."""
    return description.max_message_size_in_kilobytes * _KILOBYTE


def max_batch_bytes(description: QueueDescription | TopicDescription) -> int:
    """Return the maximum size of an encoded batch: that of a message, but at most 1 MB."""
    return min(max_message_bytes(description), _MEGABYTE)


def max_request_bytes(description: QueueDescription | TopicDescription | SubscriptionDescription) -> int:
    """Return the maximum size of a management request, which may schedule the largest allowed message or batch."""
    largest = 0 if isinstance(description, SubscriptionDescription) else max_message_bytes(description)
    return max(largest, _MEGABYTE) + _MEGABYTE


def with_min_message_size(description: Description, *, kilobytes: int) -> Description:
    """Return the description with the maximum message size, if it has one, raised to at least `kilobytes`."""
    if isinstance(description, SubscriptionDescription) or description.max_message_size_in_kilobytes >= kilobytes:
        return description
    return replace(description, max_message_size_in_kilobytes=kilobytes)


def check_encoded_size(size: int, *, messages: int, description: QueueDescription | TopicDescription) -> None:
    """Check the encoded size of one transfer.

    :param messages: the number of messages in it.
    :raises MessageTooLarge: when it exceeds the entity's limit.
    """
    kind, limit = (
        ("batch", max_batch_bytes(description)) if messages > 1 else ("message", max_message_bytes(description))
    )
    if size > limit:
        raise MessageTooLarge(f"a {kind} of {size} bytes was sent to {description.path!r}; allowed: {limit} bytes")


def check_send(
    contents: Sequence[Content], *, description: QueueDescription | TopicDescription, size_in_bytes: int
) -> None:
    """Check that an entity accepts all of these messages.

    :param size_in_bytes: the current size of the entity.
    :raises EntityDisabled: when its status forbids sending.
    :raises OperationNotAllowed: when it requires sessions and a message has no session id.
    :raises QuotaExceeded: when the messages exceed its maximum size.
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
    added = total_size(contents)
    if size_in_bytes + added > limit:
        raise QuotaExceeded(
            f"{description.path!r} holds {size_in_bytes} bytes and cannot take {added} more; allowed: {limit}"
        )


def receive_error(description: QueueDescription | SubscriptionDescription) -> BrokerError | None:
    """Return why messages of an entity and its subqueues cannot be received or browsed, or None."""
    if description.status.accepts_receives:
        return None
    return EntityDisabled(
        f"{description.path!r} has status {description.status.value} and gives out no messages; set it to Active"
    )


def receiver_attach_error(
    description: QueueDescription | SubscriptionDescription, *, is_sub_queue: bool
) -> BrokerError | None:
    """Return why a receiver cannot be attached to an entity or one of its subqueues, or None."""
    if description.forward_to is not None and not is_sub_queue:
        return OperationNotAllowed(
            f"{description.path!r} forwards its messages to {description.forward_to!r}; receive them there"
        )
    return receive_error(description)
