"""A received message that stays encoded until somebody asks for more than its position."""

from __future__ import annotations

from datetime import UTC, datetime

from azure.servicebus import ServiceBusReceivedMessage

from servicebus_pair.core.protocol.encoded_message import broker_value, message_id_of
from servicebus_pair.core.sdk.received_message import ReceivedMessage


class RelayDelivery(ReceivedMessage):
    """An encoded message of a queue; equal to itself only.

    :param encoded: the message as it was received.
    :param delivery_id: the number by which its link settles it.
    :param receiver: the link that received it.
    :param lock_ends: when the lock ends of the first message of its run, in seconds since the Unix epoch.
    """

    __slots__ = ("_decoded", "delivery_id", "encoded", "lock_ends", "receiver")

    def __init__(self, encoded: bytes, *, delivery_id: int, receiver: object, lock_ends: float | None) -> None:
        self.encoded = encoded
        self.delivery_id = delivery_id
        self.receiver = receiver
        self.lock_ends = lock_ends
        self._decoded: ServiceBusReceivedMessage | None = None
        self._amqp = None

    @property
    def sdk_message(self) -> ServiceBusReceivedMessage:  # type: ignore[override]  # decoded on demand
        """The SDK's message. :raises ValueError: it cannot decode it."""
        if self._decoded is None:
            self._decoded = ServiceBusReceivedMessage.from_bytes(self.encoded)
        return self._decoded

    @property
    def decode_error(self) -> str | None:
        """Why the SDK cannot decode the message, or ``None``."""
        try:
            _ = self.sdk_message
        except ValueError as error:
            return f"{type(error).__name__}: {error}"
        return None

    @property
    def sequence_number(self) -> int:
        """The broker's number of the message; 0 if it has none."""
        return broker_value(self.encoded, "x-opt-sequence-number") or 0

    @property
    def message_id(self) -> str | None:
        """The message id as text."""
        return message_id_of(self.encoded)

    @property
    def locked_until(self) -> datetime | None:
        """When the lock of the first message of the run ends."""
        try:
            return None if self.lock_ends is None else datetime.fromtimestamp(self.lock_ends, UTC)
        except (ValueError, OverflowError):
            return None  # what the broker said is no time
