"""Rejects messages that the service accepts from no client, whatever the entity.

The service publishes the limits ("Service Bus quotas", Microsoft Learn) but not how it enforces them. The conditions
and texts here are those that clients have reported: a message that exceeds one of these is *rejected* with an internal
error that asks to retry, and the link stays open. A retry fails in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from servicebus_emulator.amqp.codec.raw_encoding import compound_items, decode_text
from servicebus_emulator.amqp.codec.sections import SectionCode, sections
from servicebus_emulator.engine.model.errors import BrokerError, InvalidArgument, UnprocessableMessage
from servicebus_emulator.engine.model.message import Content

MAX_BATCH_MESSAGES: Final = 4500
MAX_PROPERTY_BYTES: Final = 32 * 1024
# A value this large has a constructor and a length of four bytes.
_LONG_FORM_BYTES: Final = 5
_REFUSAL: Final = (
    "The service was unable to process the request; please retry the operation and contact support if the problem "
    "persists"
)


def check_messages(contents: Sequence[Content]) -> None:
    """Check the messages of one transfer or request, which are accepted or rejected together.

    :raises UnprocessableMessage: when there are more than 4,500, or one has a time to live of 0 or an application
        property of more than 32 KB.
    """
    check_count(len(contents))
    for position, content in enumerate(contents):
        if content.time_to_live == 0:
            raise _unprocessable(f"message {position} has a time to live of 0; allowed: 1 ms and more")
        # Properties are measured only in a message that is large enough to exceed a limit.
        if len(content.sections) > MAX_PROPERTY_BYTES:
            _check_properties(content.sections, position=position)


def check_count(count: int) -> None:
    """Check the number of messages of one transfer or request.

    :raises UnprocessableMessage: when there are more than 4,500.
    """
    if count > MAX_BATCH_MESSAGES:
        raise _unprocessable(f"{count} messages; allowed: {MAX_BATCH_MESSAGES}")


def _check_properties(data: bytes, *, position: int) -> None:
    for code, _, value, end in sections(data):
        if code == SectionCode.APPLICATION_PROPERTIES and end - value > MAX_PROPERTY_BYTES:
            _check_each_property(data[value:end], position=position)


def _check_each_property(data: bytes, *, position: int) -> None:
    try:
        items = compound_items(data)
        for key, value in zip(items[::2], items[1::2], strict=True):
            # Without its constructor and length: the limit is that of the value, not of its encoding.
            size = len(value) - _LONG_FORM_BYTES
            if size > MAX_PROPERTY_BYTES:
                raise _unprocessable(
                    f"property {decode_text(key)!r} of message {position} has {size} bytes; allowed: "
                    f"{MAX_PROPERTY_BYTES}"
                )
    except ValueError as error:
        raise InvalidArgument(f"the application properties of message {position} are malformed: {error}") from error


def _unprocessable(reason: str) -> BrokerError:
    return UnprocessableMessage(f"{_REFUSAL}. ({reason})")
