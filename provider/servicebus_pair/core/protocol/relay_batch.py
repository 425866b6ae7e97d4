"""Packs encoded messages into a batch as Service Bus takes it: a message with one data section for each. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from servicebus_pair.core.model.errors import MessageTooLargeError
from servicebus_pair.core.model.events import MessageRef
from servicebus_pair.core.protocol.amqp_sections import BODY, binary, section
from servicebus_pair.core.protocol.encoded_message import batch_prefix
from servicebus_pair.core.protocol.relayed_message import RelayedMessage

__all__ = ["RelayBatch"]

# Message formats of Service Bus: of a single message and of a batch.
_SINGLE: Final = 0
_BATCH: Final = 0x80013700
_SHORT_LIMIT: Final = 256
_SHORT_SECTION: Final = section(BODY, b"\xa0")
_SHORT_SECTION_BYTES: Final = 5
_LONG_SECTION_BYTES: Final = 8


class RelayBatch:
    """A batch of encoded messages; implements ``batching.Batch``.

    A message that remains the only one is sent alone. It may then be as large as ``max_message_bytes``.

    :param max_bytes: maximum size of a batch, from the link.
    :param max_message_bytes: maximum size of a message outside a batch, from the link; at least ``max_bytes``.
    """

    def __init__(self, max_bytes: int, *, max_message_bytes: int = 0) -> None:
        self._max_bytes = max_bytes
        self._max_message_bytes = max(max_bytes, max_message_bytes)
        self._bytes = 0
        self.messages: list[RelayedMessage] = []

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def refs(self) -> list[MessageRef]:
        """Id and size of each message."""
        return [MessageRef(message.message_id, len(message.encoded)) for message in self.messages]

    @property
    def max_size(self) -> int:
        """Bytes of the largest message."""
        return max(len(message.encoded) for message in self.messages)

    def try_add(self, message: RelayedMessage) -> bool:
        """Add ``message``; return False when the batch is full.

        :raises MessageTooLargeError: it fits neither a batch nor the link.
        """
        size = len(message.encoded)
        bytes_after = self._bytes + size + (_SHORT_SECTION_BYTES if size < _SHORT_LIMIT else _LONG_SECTION_BYTES)
        if not self.messages:
            if size > self._max_message_bytes:
                raise MessageTooLargeError(
                    f"message {message.message_id!r} takes {size} bytes: the link takes {self._max_message_bytes}"
                )
            bytes_after += len(batch_prefix(message.encoded))
        elif bytes_after > self._max_bytes:
            return False
        self._bytes = bytes_after
        self.messages.append(message)
        return True

    def split(self) -> list[RelayBatch]:
        """Return two batches with half of the messages each, in order."""
        middle = (len(self.messages) + 1) // 2
        return [*self.repack(self.messages[:middle]), *self.repack(self.messages[middle:])]

    def repack(self, messages: Iterable[RelayedMessage]) -> list[RelayBatch]:
        """Return some of the messages in batches with the same limits, in order."""
        batches = [self._empty()]
        for message in messages:
            if not batches[-1].try_add(message):
                batches.append(self._empty())
                batches[-1].try_add(message)
        return batches

    def _empty(self) -> RelayBatch:
        return RelayBatch(self._max_bytes, max_message_bytes=self._max_message_bytes)

    def payload(self) -> tuple[bytes, int]:
        """Return what is sent, and its message format."""
        if len(self.messages) == 1:
            return self.messages[0].encoded, _SINGLE
        parts = [batch_prefix(self.messages[0].encoded)]
        for message in self.messages:
            encoded = message.encoded
            size = len(encoded)
            if size < _SHORT_LIMIT:
                parts += (_SHORT_SECTION, bytes((size,)), encoded)
            else:
                parts.append(section(BODY, binary(encoded)))
        return b"".join(parts), _BATCH
