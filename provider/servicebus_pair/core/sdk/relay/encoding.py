"""Encodes messages that had to be decoded to be restored."""

from __future__ import annotations

from typing import Final

from servicebus_pair.core.protocol.amqp_message import AmqpMessage
from servicebus_pair.core.protocol.batching import partition_key
from servicebus_pair.core.protocol.relayed_message import RelayedMessage
from servicebus_pair.core.protocol.typed_values import to_text
from servicebus_pair.core.sdk.message_batch import EncodedBatch

_NO_LIMIT: Final = 2**63


def encode_message(message: AmqpMessage | RelayedMessage) -> RelayedMessage:
    """Return an encoded message. :raises InvalidMessageError: one of its values has no AMQP encoding."""
    if isinstance(message, RelayedMessage):
        return message
    from servicebus_pair.core.sdk._private import message_encoding

    batch = EncodedBatch(_NO_LIMIT)
    batch.try_add(message)
    [message_id] = batch.ids
    properties = message.properties
    session = None if properties is None else properties.group_id
    return RelayedMessage(
        bytes(message_encoding.encode_message(message)),
        message_id,
        session_id=None if session is None else to_text(session),
        partition_key=partition_key(message),
    )
