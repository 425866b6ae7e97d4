"""A message as AMQP 1.0 lays it out (section 3.2): sections, each with its values. Pure.

Above ``core.sdk`` messages have this form; ``core.sdk`` converts what applications pass to it, and it to what the Azure
SDK sends and receives. Converted messages share their sections' maps and bodies: none of them is modified.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final

from servicebus_pair.core.model.errors import InvalidMessageError
from servicebus_pair.core.protocol.typed_values import text_keys

PARTITION_KEY: Final = "x-opt-partition-key"
"""Annotation with the partition key."""
SCHEDULED_TIME: Final = "x-opt-scheduled-enqueue-time"
"""Annotation with the time at which a message becomes available."""
TIMESTAMPS: Final = range(-62_135_596_800_000, 253_402_300_800_000)
"""Times from the year 1 to 9999, in milliseconds since 1970: what the service and the SDK can read."""
MAX_TIME_TO_LIVE: Final = 2**32 - 1
"""The longest time to live that a header holds, in milliseconds."""
PING_CONTENT_TYPE: Final = "application/vnd.ms-servicebus-ping"
"""Content type of a ping, which the service and our receivers discard."""
MAX_PROPERTY_BYTES: Final = 32 * 1024
"""The longest application property that the service takes."""
MAX_PROPERTIES_BYTES: Final = 64 * 1024
"""What all application properties of a message may take together."""
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
_PINGS: Final = (PING_CONTENT_TYPE, PING_CONTENT_TYPE.encode())
_MILLISECOND: Final = timedelta(milliseconds=1)
DIGEST_BYTES: Final = 8


class BodyType(StrEnum):
    """Which of the three kinds of body a message has."""

    DATA = "data"
    VALUE = "value"
    SEQUENCE = "sequence"


@dataclass(slots=True)
class Header:
    """How a message is to be delivered; ``time_to_live`` is in milliseconds."""

    durable: bool | None = None
    priority: int | None = None
    time_to_live: int | None = None
    first_acquirer: bool | None = None
    delivery_count: int | None = None


@dataclass(slots=True)
class Properties:
    """The standard properties; texts of a received message may be ``bytes``, times are milliseconds since 1970."""

    message_id: Any = None
    user_id: Any = None
    to: Any = None
    subject: Any = None
    reply_to: Any = None
    correlation_id: Any = None
    content_type: Any = None
    content_encoding: Any = None
    absolute_expiry_time: int | None = None
    creation_time: int | None = None
    group_id: Any = None
    group_sequence: int | None = None
    reply_to_group_id: Any = None


@dataclass(slots=True, eq=False)
class AmqpMessage:
    """A message; compared by identity, which is how a send accounts for it.

    :param body: ``list`` of ``bytes`` (data), any value, or ``list`` of rows (sequence).
    :param origin: the application's object that this was made from, to be handed back if it is not sent.
    """

    body: Any = field(repr=False)
    body_type: BodyType = BodyType.DATA
    header: Header | None = None
    properties: Properties | None = None
    application_properties: Mapping[Any, Any] | None = field(default=None, repr=False)
    annotations: Mapping[Any, Any] | None = None
    delivery_annotations: Mapping[Any, Any] | None = None
    footer: Mapping[Any, Any] | None = None
    origin: Any = field(default=None, repr=False)


def new_message(
    body: str | bytes,
    *,
    time_to_live: timedelta | None = None,
    scheduled_enqueue_time: datetime | None = None,
    partition_key: str | None = None,
    session_id: str | None = None,
    reply_to_session_id: str | None = None,
    application_properties: Mapping[str, Any] | None = None,
    **properties: str | None,
) -> AmqpMessage:
    """Return a message with a data body.

    :param properties: fields of :class:`Properties`, such as ``message_id`` and ``subject``.
    """
    annotations = {SCHEDULED_TIME: scheduled_enqueue_time, PARTITION_KEY: partition_key}
    return AmqpMessage(
        [body.encode() if isinstance(body, str) else body],
        header=None if time_to_live is None else Header(time_to_live=time_to_live // _MILLISECOND),
        properties=Properties(group_id=session_id, reply_to_group_id=reply_to_session_id, **properties),  # type: ignore[arg-type]  # texts
        application_properties=application_properties,
        annotations={name: value for name, value in annotations.items() if value is not None} or None,
    )


def body_digest(message: AmqpMessage) -> str | None:
    """Return a digest of a data body, however it is cut into sections; ``None`` for other bodies.

    Values and sequences have several encodings, between which a broker may change.
    """
    if message.body_type is not BodyType.DATA:
        return None
    digest = blake2b(digest_size=DIGEST_BYTES)
    for section in message.body:
        # The SDK sends a text as UTF-8.
        digest.update(section.encode() if isinstance(section, str) else section)
    return digest.hexdigest()


def body_size(message: AmqpMessage) -> int:
    """Return the bytes of a body, roughly if it is a value other than a text or binary data."""
    return sum(map(len, message.body)) if message.body_type is BodyType.DATA else value_size(message.body)


def value_size(value: Any) -> int:
    """Return the bytes of a text or of binary data, and of another value those of its text."""
    return _bytes(value if isinstance(value, str | bytes) else str(value))


def is_ping(content_type: object) -> bool:
    """Return whether a message is a ping, by its content type."""
    return content_type in _PINGS


def check_message(message: AmqpMessage) -> None:
    """Check what the service rejects of every message (SPEC section 4), or would discard.

    It would answer with an internal error for the whole batch, and the sender would have to find out which message it
    was.

    :raises InvalidMessageError: names the field, its value and what is allowed.
    """
    if message.header is not None and message.header.time_to_live is not None:
        _check_time_to_live(message.header.time_to_live)
    if message.properties is not None and message.properties.content_type in _PINGS:
        raise InvalidMessageError(f"content type is {PING_CONTENT_TYPE}: no receiver would get it, as pings have it")
    if message.annotations:
        _check_schedule(message.annotations.get(SCHEDULED_TIME, message.annotations.get(_SCHEDULED_KEY)))
    properties = message.application_properties
    if not properties:
        return
    characters = sum(map(_length, properties)) + sum(map(_length, properties.values()))
    if characters * _MAX_BYTES_PER_CHARACTER > MAX_PROPERTY_BYTES:
        _check_properties(text_keys(properties))


def _check_time_to_live(milliseconds: Any) -> None:
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
