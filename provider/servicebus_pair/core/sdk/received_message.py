"""A received or peeked message: what the broker says of it, and its sections, decoded on demand."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from azure.servicebus import ServiceBusReceivedMessage

from servicebus_pair.core.protocol.amqp_message import AmqpMessage, body_digest
from servicebus_pair.core.protocol.backlog_properties import PATH
from servicebus_pair.core.protocol.message_outline import MessageOutline
from servicebus_pair.core.protocol.typed_values import text_keys, to_text
from servicebus_pair.core.sdk._private.receiver_patches import decode_error
from servicebus_pair.core.sdk.messages import from_sdk


class MessageState(StrEnum):
    """What a message in a queue waits for."""

    ACTIVE = "active"
    DEFERRED = "deferred"
    SCHEDULED = "scheduled"


class ReceivedMessage:
    """A message of a queue; equal to itself only."""

    __slots__ = ("__weakref__", "_amqp", "sdk_message")

    def __init__(self, sdk_message: ServiceBusReceivedMessage) -> None:
        self.sdk_message = sdk_message
        """The SDK's message, for ``core.sdk`` to settle."""
        self._amqp: AmqpMessage | None = None

    @property
    def decode_error(self) -> str | None:
        """Why the SDK could not decode the message, or ``None``; then only its position is known."""
        return decode_error(self.sdk_message)

    @property
    def amqp(self) -> AmqpMessage:
        """The sections of the message."""
        if self._amqp is None:
            self._amqp = from_sdk(self.sdk_message.raw_amqp_message)
        return self._amqp

    @property
    def sequence_number(self) -> int:
        """The broker's number of the message; 0 if it could not be decoded, or has none."""
        number = self.sdk_message.sequence_number
        return number if isinstance(number, int) else 0

    @property
    def enqueued_sequence_number(self) -> int | None:
        """The number that the first queue of a forwarded message gave it."""
        return self.sdk_message.enqueued_sequence_number

    @property
    def enqueued_time(self) -> datetime | None:
        """When the broker stored the message."""
        return _time(self.sdk_message, "enqueued_time_utc")

    @property
    def scheduled_enqueue_time(self) -> datetime | None:
        """When the message becomes or became available, if it was scheduled."""
        return _time(self.sdk_message, "scheduled_enqueue_time_utc")

    @property
    def locked_until(self) -> datetime | None:
        """When the lock of a received message ends."""
        return _time(self.sdk_message, "locked_until_utc")

    @property
    def state(self) -> MessageState:
        """What the message waits for; nothing, if the broker says what is no state."""
        name = getattr(self.sdk_message.state, "name", None)
        return MessageState.ACTIVE if name is None else MessageState(name.lower())

    @property
    def delivery_count(self) -> int | None:
        """How often the message was delivered before."""
        return self.sdk_message.delivery_count

    @property
    def partition_key(self) -> str | None:
        """The partition key."""
        return self.sdk_message.partition_key

    @property
    def dead_letter_reason(self) -> str | None:
        """Why the message was dead-lettered."""
        return self.sdk_message.dead_letter_reason

    @property
    def dead_letter_error_description(self) -> str | None:
        """The description that goes with the reason."""
        return self.sdk_message.dead_letter_error_description

    @property
    def dead_letter_source(self) -> str | None:
        """The entity that dead-lettered the message."""
        return self.sdk_message.dead_letter_source

    @property
    def message_id(self) -> Any:
        """The message id, as text where it is UTF-8."""
        return self.sdk_message.message_id

    @property
    def session_id(self) -> Any:
        """The session id, as text where it is UTF-8."""
        return self.sdk_message.session_id

    @property
    def content_type(self) -> Any:
        """The content type, as text where it is UTF-8."""
        return self.sdk_message.content_type

    @property
    def digest(self) -> str | None:
        """A digest of the body, as of ``body_digest``."""
        return body_digest(self.amqp)

    @property
    def destination(self) -> str:
        """The entity that a backlog message is for; empty if it names none."""
        path = text_keys(self.amqp.application_properties).get(PATH)
        try:
            return to_text(path) if isinstance(path, str | bytes) else ""
        except UnicodeDecodeError:
            return ""


def _time(message: ServiceBusReceivedMessage, name: str) -> datetime | None:
    """Return a time that the broker gave; ``None`` if it gave none, or what is no time."""
    try:
        value = getattr(message, name)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if isinstance(value, datetime) else None


_STATES: Final = (MessageState.ACTIVE, MessageState.DEFERRED, MessageState.SCHEDULED)


class OutlinedMessage(ReceivedMessage):
    """A peeked message of which no more is known than its outline; its other attributes cannot be read."""

    __slots__ = ("outline",)

    def __init__(self, outline: MessageOutline) -> None:
        self.outline = outline

    @property
    def sequence_number(self) -> int:
        """The broker's number of the message."""
        return self.outline.sequence_number

    @property
    def state(self) -> MessageState:
        """What the message waits for."""
        return _STATES[self.outline.state]

    @property
    def message_id(self) -> str | None:
        """The message id."""
        return self.outline.message_id

    @property
    def session_id(self) -> str | None:
        """The session id."""
        return self.outline.session_id

    @property
    def content_type(self) -> str | None:
        """The content type."""
        return self.outline.content_type

    @property
    def digest(self) -> str | None:
        """A digest of the body."""
        return self.outline.digest

    @property
    def destination(self) -> str:
        """The entity that a backlog message is for; empty if it names none."""
        return self.outline.destination
