"""Messages on their way to the backlog, which need no encoding yet: their copies get it.

While an entity is failed over, a batch for the primary would be encoded for nothing.
"""

from __future__ import annotations

from typing import Final

from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType

__all__ = ["Pile"]

_MOST_BYTES: Final = 1_048_576
# What a message takes beside its body, about.
_BESIDE_BODY: Final = 300


class Pile:
    """Some messages of one partition key; implements ``batching.Batch``. It bounds memory, roughly, and no more."""

    def __init__(self) -> None:
        self.messages: list[AmqpAnnotatedMessage] = []
        self._bytes = 0

    def try_add(self, message: AmqpAnnotatedMessage) -> bool:
        """Add ``message`` unless about 1 MB is there already; the first one always fits."""
        size = _BESIDE_BODY + _body_bytes(message)
        if self.messages and self._bytes + size > _MOST_BYTES:
            return False
        self.messages.append(message)
        self._bytes += size
        return True

    def __len__(self) -> int:
        return len(self.messages)


def _body_bytes(message: AmqpAnnotatedMessage) -> int:
    # The body of the other kinds can be of any shape; it is small, or one message more makes little difference.
    return sum(map(len, message.body)) if message.body_type is AmqpMessageBodyType.DATA else 0
