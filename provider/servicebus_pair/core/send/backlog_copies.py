"""Messages bound for the backlog: collecting them unencoded, and how much larger their copies are.

While an entity is failed over, only the backlog copy of a message is encoded; encoding the message itself for a
batch to the primary would be wasted.
"""

from __future__ import annotations

from typing import Final

from servicebus_pair.core.protocol.amqp_message import AmqpMessage, BodyType
from servicebus_pair.core.protocol.backlog_message import wrap
from servicebus_pair.core.sdk.message_batch import encoded_size
from servicebus_pair.core.sdk.send_link import STANDARD_BATCH_BYTES
from servicebus_pair.core.send.delivery_state import TrackedMessage

_MAX_BATCH_BYTES: Final = 1_048_576
# Rough size of a message without its body.
_MESSAGE_OVERHEAD_BYTES: Final = 300
LARGEST_UNCHECKED: Final = STANDARD_BATCH_BYTES // 10
"""Bytes of a message whose copy fits every tier: one can grow to several times its message when that has many short
properties of rare types, but not tenfold."""


class UnencodedBatch:
    """Messages of one partition key, limited to about 1 MB of memory; implements ``batching.Batch``."""

    def __init__(self) -> None:
        self.messages: list[TrackedMessage] = []
        self._bytes = 0

    def try_add(self, tracked: TrackedMessage) -> bool:
        """Add a message unless the batch is full; the first one always fits."""
        size = _MESSAGE_OVERHEAD_BYTES + _body_bytes(tracked.message)
        if self.messages and self._bytes + size > _MAX_BATCH_BYTES:
            return False
        self.messages.append(tracked)
        self._bytes += size
        return True

    def __len__(self) -> int:
        return len(self.messages)


def copy_overhead(message: AmqpMessage, *, entity: str) -> int:
    """Return by how many bytes the backlog copy of ``message`` is larger than the message, exactly.

    :param entity: path of the queue or topic on the primary, which is part of the copy.
    :raises InvalidMessageError: as :func:`wrap`, or a value has no AMQP encoding.
    """
    return encoded_size(wrap(message, entity=entity)) - encoded_size(message)


def _body_bytes(message: AmqpMessage) -> int:
    # Value and sequence bodies are not measured: they can nest arbitrarily and are usually small.
    return sum(map(len, message.body)) if message.body_type is BodyType.DATA else 0
