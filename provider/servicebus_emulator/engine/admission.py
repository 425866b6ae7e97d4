"""Which messages an entity takes in."""

from __future__ import annotations

from collections.abc import Sequence

from servicebus_emulator.engine.descriptions import QueueDescription, TopicDescription
from servicebus_emulator.engine.errors import EntityDisabled, MessageTooLarge, OperationNotAllowed, QuotaExceeded
from servicebus_emulator.engine.message import Content

__all__ = ["admit", "check_transfer_size"]

_KILOBYTE = 1024
_MEGABYTE = 1024 * 1024


def check_transfer_size(size: int, *, description: QueueDescription | TopicDescription) -> None:
    """Check the encoded size of a message or batch.

    :raises MessageTooLarge: when it exceeds the entity's limit.
    """
    limit = description.max_message_size_in_kilobytes * _KILOBYTE
    if size > limit:
        raise MessageTooLarge(
            f"a message or batch of {size} bytes was sent to {description.path!r}; allowed: {limit} bytes"
        )


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
    arriving = sum(content.size for content in contents)
    if size_in_bytes + arriving > limit:
        raise QuotaExceeded(
            f"{description.path!r} holds {size_in_bytes} bytes and cannot take {arriving} more; allowed: {limit}"
        )
