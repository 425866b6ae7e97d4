"""A row of the published table -> a message; the columns are described in ``schema``. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, cast

from azure.servicebus import ServiceBusMessage

from servicebus_pair.core.amqp_types import typed
from servicebus_pair.core.errors import InvalidMessageError

__all__ = ["message_of"]


def message_of(row: Mapping[str, Any]) -> ServiceBusMessage:
    """Answer the message that ``row`` describes.

    :param row: values by column name, as Arrow gives them: a map is a list of pairs.
    :raises InvalidMessageError: naming the message id and the column.
    """
    seconds = row.get("timeToLive")
    return ServiceBusMessage(
        row["body"],
        message_id=row["messageId"],
        session_id=row.get("sessionId"),
        subject=row.get("subject"),
        correlation_id=row.get("correlationId"),
        content_type=row.get("contentType"),
        time_to_live=None if seconds is None else timedelta(seconds=int(seconds)),
        scheduled_enqueue_time_utc=row.get("scheduledEnqueueTime"),
        application_properties=cast("Any", _properties(row) or None),  # typed values are the SDK's own, unannotated
    )


def _properties(row: Mapping[str, Any]) -> dict[str, Any]:
    given = row.get("applicationProperties")
    if given is None:
        return {}
    pairs = _parsed(given, row["messageId"]).items() if isinstance(given, str) else _pairs(given)
    return {name: _amqp(value, name, row["messageId"]) for name, value in pairs if value is not None}


def _pairs(given: Any) -> Iterable[tuple[str, Any]]:
    return given.items() if isinstance(given, Mapping) else given


def _parsed(text: str, message_id: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidMessageError(f"message {message_id!r}: applicationProperties is not JSON: {error.msg}") from error
    if not isinstance(value, dict):
        raise InvalidMessageError(f"message {message_id!r}: applicationProperties is not a JSON object")
    return value


def _amqp(value: Any, name: str, message_id: str) -> Any:
    match value:
        case bool() | str() | float():
            return value
        case int():
            # The SDK writes a plain int in 32 bits.
            return typed("LONG", value)
    raise InvalidMessageError(
        f"message {message_id!r}: application property {name} is a {type(value).__name__}: "
        "allowed are string, long, double and boolean"
    )
