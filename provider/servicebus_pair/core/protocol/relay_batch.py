"""Packs encoded messages into a batch as Service Bus takes it: a message with one data section for each. Pure."""

from __future__ import annotations

from typing import Final

from servicebus_pair.core.model.events import MessageRef
from servicebus_pair.core.protocol.amqp_sections import BODY, section
from servicebus_pair.core.protocol.batching import SizedBatch
from servicebus_pair.core.protocol.encoded_message import batch_prefix
from servicebus_pair.core.protocol.relayed_message import RelayedMessage

# Message formats of Service Bus: of a single message and of a batch.
_SINGLE: Final = 0
_BATCH: Final = 0x80013700
_SHORT_LIMIT: Final = 256
# The body is of type binary, with a length of one byte or of four.
_SHORT_SECTION: Final = section(BODY, b"\xa0")
_LONG_SECTION: Final = section(BODY, b"\xb0")


class RelayBatch(SizedBatch[RelayedMessage]):
    """A batch of encoded messages."""

    @property
    def refs(self) -> list[MessageRef]:
        """Id and size of each message."""
        return [MessageRef(message.message_id, len(message.encoded)) for message in self.messages]

    def try_add(self, message: RelayedMessage) -> bool:
        """Add ``message``; return False when the batch is full.

        :raises MessageTooLargeError: it fits neither a batch nor the link.
        """
        return self._append(message, len(message.encoded))

    def _envelope_bytes(self) -> int:
        return len(batch_prefix(self.messages[0].encoded))

    def _name(self, message: RelayedMessage) -> str:
        return message.message_id

    def payload(self) -> tuple[bytes, int]:
        """Return what is sent, and its message format."""
        first, *others = self.messages
        if not others:
            return first.encoded, _SINGLE
        parts = [batch_prefix(first.encoded)]
        for message in self.messages:
            size = len(message.encoded)
            short = size < _SHORT_LIMIT
            parts += (_SHORT_SECTION if short else _LONG_SECTION, size.to_bytes(1 if short else 4), message.encoded)
        return b"".join(parts), _BATCH
