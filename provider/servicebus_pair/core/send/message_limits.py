"""What the service rejects of every message, checked before sending (SPEC section 4). Pure.

A message beyond these limits would be rejected with an internal error, together with its batch, and the sender would
have to find out which message it was.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from servicebus_pair.core.model.errors import InvalidMessageError
from servicebus_pair.core.protocol.amqp_message import MAX_TIME_TO_LIVE, SCHEDULED_TIME, TIMESTAMPS, AmqpMessage
from servicebus_pair.core.protocol.typed_values import text_keys

MAX_PROPERTY_BYTES: Final = 32 * 1024
MAX_PROPERTIES_BYTES: Final = 64 * 1024
# The SDK sets annotations by this form of the name.
_SCHEDULED_KEY: Final = SCHEDULED_TIME.encode()
# A character takes at most 4 bytes in UTF-8: properties with fewer characters need not be measured.
_MAX_BYTES_PER_CHARACTER: Final = 4
# What a value takes that is neither text nor bytes, at most.
_SCALAR_BYTES: Final = 17
# AMQP 1.0, sections 1.6.19 to 1.6.22 and 3.2.5: constructors and lengths of texts, of the map and of the section.
_SHORT_LENGTH: Final = 2
_LONG_LENGTH: Final = 5
_LONGEST_SHORT: Final = 255
_SECTION_BYTES: Final = 12


def check_message(message: AmqpMessage) -> None:
    """Check one message.

    :raises InvalidMessageError: names the field, its value and what is allowed.
    """
    if message.header is not None and message.header.time_to_live is not None:
        _check_time_to_live(message.header.time_to_live)
    if message.annotations:
        _check_schedule(message.annotations.get(SCHEDULED_TIME, message.annotations.get(_SCHEDULED_KEY)))
    properties = message.application_properties
    if not properties:
        return
    characters = sum(map(_length, properties)) + sum(map(_length, properties.values()))
    if characters * _MAX_BYTES_PER_CHARACTER > MAX_PROPERTY_BYTES:
        _check_properties(text_keys(properties))


def _check_time_to_live(milliseconds: Any) -> None:
    if milliseconds == 0:
        raise InvalidMessageError("time to live is 0: it must be longer, or none")
    if not isinstance(milliseconds, int) or not 0 < milliseconds <= MAX_TIME_TO_LIVE:
        raise InvalidMessageError(
            f"time to live is {milliseconds!r} ms: allowed are 1 to {MAX_TIME_TO_LIVE}, 49 days, or none"
        )


def _check_schedule(value: Any) -> None:
    """Check an annotation that the copy for the backlog must carry as what it is on the primary."""
    match value:
        case None | datetime():
            return
        case {"TYPE": "TIMESTAMP", "VALUE": int(milliseconds)} if milliseconds in TIMESTAMPS:
            return
    raise InvalidMessageError(
        f"annotation {SCHEDULED_TIME} is {value!r}: allowed are a datetime and an AMQP timestamp of the years 1 to 9999"
    )


def _check_properties(properties: dict[str, Any]) -> None:
    total = _SECTION_BYTES
    for name, value in properties.items():
        size = _bytes(value)
        total += _encoded(_bytes(name)) + _encoded(size)
        if size > MAX_PROPERTY_BYTES:
            raise InvalidMessageError(
                f"application property {name[:100]!r} takes {size} bytes: at most {MAX_PROPERTY_BYTES} are allowed"
            )
    if total > MAX_PROPERTIES_BYTES:
        raise InvalidMessageError(
            f"the application properties take {total} bytes together: at most {MAX_PROPERTIES_BYTES} are allowed"
        )


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes) else _SCALAR_BYTES


def _encoded(size: int) -> int:
    return size + (_SHORT_LENGTH if size <= _LONGEST_SHORT else _LONG_LENGTH)


def _bytes(value: Any) -> int:
    return len(value.encode(errors="surrogatepass")) if isinstance(value, str) else _length(value)
