"""A message as it is on the wire, and as it comes back: the SDK's own encoder and decoder."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import patch

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

__all__ = ["received", "sent"]

_CLOCK = "azure.servicebus._transport._pyamqp_transport.time"
_NOON = 1_357_041_600.0


def sent(message: AmqpAnnotatedMessage | ServiceBusMessage) -> bytes:
    """The bytes of one message in a batch, as the SDK would put them on the wire at a fixed time of day."""
    batch = ServiceBusMessageBatch()
    with patch(_CLOCK, SimpleNamespace(mktime=lambda _: _NOON)):
        batch.add_message(message)
    return bytes(batch._message[5][0])


def received(wire: bytes) -> AmqpAnnotatedMessage:
    """What a receiver is given for such bytes."""
    return ServiceBusReceivedMessage.from_bytes(wire).raw_amqp_message
