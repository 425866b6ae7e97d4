"""A received message as plain values that JSON can hold. Pure.

The fields are those of a message to send, so that a received message can be sent again, and what the broker says of it.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Collection, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from servicebus_pair.core.protocol.amqp_message import PARTITION_KEY, AmqpMessage, BodyType

# Our name of each standard property.
_PROPERTIES: Final = {
    "message_id": "message_id",
    "group_id": "session_id",
    "subject": "subject",
    "content_type": "content_type",
    "correlation_id": "correlation_id",
    "reply_to": "reply_to",
    "reply_to_group_id": "reply_to_session_id",
    "to": "to",
}


class UnreadableMessageError(ValueError):
    """A message has a value that JSON cannot hold, or a reserved key."""


def message_fields(message: AmqpMessage) -> dict[str, Any]:
    """Return the fields that are set; ``body`` is a text, or ``{"base64": ...}`` where it is not UTF-8.

    A value or sequence body is a JSON value, with its kind in ``body_type``. Times and UUIDs are texts.

    :raises UnreadableMessageError: a value is of no type that JSON can hold.
    """
    try:
        return _fields(message)
    except RecursionError:
        raise UnreadableMessageError("its values are nested too deeply") from None


def check_keys(value: Any, reserved: Collection[str]) -> None:
    """Check that no mapping in a JSON value has a reserved key. :raises UnreadableMessageError: one has."""
    if isinstance(value, dict):
        for key, each in value.items():
            if key in reserved:
                raise UnreadableMessageError(f"a mapping in it has the key {key}, which is reserved")
            check_keys(each, reserved)
    elif isinstance(value, list):
        for each in value:
            check_keys(each, reserved)


def _fields(message: AmqpMessage) -> dict[str, Any]:
    data = message.body_type is BodyType.DATA
    fields: dict[str, Any] = {"body": _plain(b"".join(message.body) if data else message.body)}
    if not data:
        fields["body_type"] = message.body_type.value
    for theirs, ours in _PROPERTIES.items():
        value = getattr(message.properties, theirs, None)
        if value is not None:
            fields[ours] = _plain(value)
    annotations = message.annotations or {}
    partition_key = annotations.get(PARTITION_KEY, annotations.get(PARTITION_KEY.encode()))
    if partition_key is not None:
        fields["partition_key"] = _plain(partition_key)
    if message.header is not None and message.header.time_to_live is not None:
        fields["time_to_live"] = message.header.time_to_live / 1000
    if message.application_properties:
        fields["application_properties"] = _plain(message.application_properties)
    return fields


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | str():
            return value
        case bytes() | bytearray() | memoryview():
            return _text(bytes(value))
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else str(float(value))
        case UUID() | Decimal():
            return str(value)
        case datetime():
            return value.isoformat()
        case Mapping():
            return {str(_plain(key)): _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
    raise UnreadableMessageError(f"it has a value of type {type(value).__name__}, which JSON cannot hold")


def _text(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(value).decode("ascii")}
