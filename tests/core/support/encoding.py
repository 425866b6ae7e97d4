"""Encode and decode messages with the SDK."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import patch

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.protocol.amqp_message import AmqpMessage, Properties
from servicebus_pair.core.sdk.messages import to_sdk

_CLOCK = "azure.servicebus._transport._pyamqp_transport.time"
_NOON = 1_357_041_600.0


def encode(message: AmqpMessage | AmqpAnnotatedMessage | ServiceBusMessage) -> bytes:
    """Return the bytes of a message in a batch, encoded at a fixed time."""
    batch = ServiceBusMessageBatch()
    with patch(_CLOCK, SimpleNamespace(mktime=lambda _: _NOON)):
        batch.add_message(to_sdk(message) if isinstance(message, AmqpMessage) else message)
    return bytes(batch._message[5][0])


def properties_of(message: AmqpMessage) -> Properties:
    """Return the properties of a message that has some."""
    assert message.properties is not None
    return message.properties


def decode(wire: bytes) -> AmqpAnnotatedMessage:
    """Return the message that a receiver gets for these bytes."""
    return ServiceBusReceivedMessage.from_bytes(wire).raw_amqp_message
