"""The columns of a read (``docs/spark.md`` explains them), and the conversion of a peeked message to a row."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.types import StructType

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.protocol import BodyType, text_keys
from servicebus_pair.core.sdk import ReceivedMessage
from servicebus_pair.spark.base.arrow_schema import RowSchema
from servicebus_pair.spark.base.offsets import PeekTarget


def _body(message: ReceivedMessage) -> bytes:
    body = message.amqp.body
    if message.amqp.body_type is BodyType.DATA:
        return b"".join(body)
    match body:
        case bytes():
            return body
        case str():
            return body.encode()
    return json.dumps(_json_value(body), ensure_ascii=False).encode()


def _seconds_to_live(message: ReceivedMessage) -> float | None:
    header = message.amqp.header
    return header.time_to_live / 1000 if header is not None and header.time_to_live else None


def _property(name: str) -> Callable[[ReceivedMessage], str | None]:
    return lambda message: _text(getattr(message.amqp.properties, name, None))


def _properties(message: ReceivedMessage) -> str | None:
    given = message.amqp.application_properties
    if not given:
        return None
    return json.dumps({name: _json_value(value) for name, value in text_keys(given).items()}, ensure_ascii=False)


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)


def _json_value(value: Any) -> Any:
    """Convert a value to JSON types: Base64 for bytes that are not UTF-8, text for anything JSON lacks."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if isfinite(value) else str(value)
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return base64.b64encode(value).decode()
        case list() | tuple():
            return [_json_value(item) for item in value]
        case dict():
            return {str(_json_value(key)): _json_value(item) for key, item in value.items()}
    return str(value)


_Column: TypeAlias = tuple[str, Callable[[ReceivedMessage], Any]]
_COLUMNS: Final[Mapping[str, _Column]] = {
    "body": ("binary", _body),
    "bodyType": ("string", lambda message: str(message.amqp.body_type)),
    "messageId": ("string", _property("message_id")),
    "sessionId": ("string", _property("group_id")),
    "subject": ("string", _property("subject")),
    "correlationId": ("string", _property("correlation_id")),
    "contentType": ("string", _property("content_type")),
    "replyTo": ("string", _property("reply_to")),
    "to": ("string", _property("to")),
    "partitionKey": ("string", lambda message: _text(message.partition_key)),
    "timeToLive": ("double", _seconds_to_live),
    "scheduledEnqueueTime": ("timestamp", lambda message: message.scheduled_enqueue_time),
    "applicationProperties": ("string", _properties),
    "sequenceNumber": ("bigint", lambda message: message.sequence_number),
    "enqueuedSequenceNumber": ("bigint", lambda message: message.enqueued_sequence_number),
    "enqueuedTime": ("timestamp", lambda message: message.enqueued_time),
    "state": ("string", lambda message: str(message.state)),
    "deliveryCount": ("int", lambda message: message.delivery_count),
    "deadLetterReason": ("string", lambda message: _text(message.dead_letter_reason)),
    "deadLetterErrorDescription": ("string", lambda message: _text(message.dead_letter_error_description)),
    "deadLetterSource": ("string", lambda message: _text(message.dead_letter_source)),
}
SCHEMA: Final = RowSchema(
    dict.fromkeys(("namespace", "entity", "subQueue"), "string") | {name: kind for name, (kind, _) in _COLUMNS.items()}
)


def check_schema(schema: StructType) -> tuple[str, ...]:
    """Return the columns that the user asks for.

    :raises ConfigurationError: one of them is not in :data:`SCHEMA`, or has another type there.
    """
    for field in schema:
        if SCHEMA.columns.get(field.name) != field.dataType.simpleString():
            raise ConfigurationError(
                f"the schema has {field.name} {field.dataType.simpleString()}: allowed are some or all of {SCHEMA.ddl}"
            )
    return tuple(field.name for field in schema)


def to_record_batch(
    messages: Sequence[ReceivedMessage], *, namespace: str, target: PeekTarget, columns: Sequence[str]
) -> pa.RecordBatch:
    """Return messages as rows with these columns only."""
    common = {"namespace": namespace, "entity": target.path, "subQueue": target.sub_queue}
    return RowSchema({name: SCHEMA.columns[name] for name in columns}).from_columns(
        [common[name]] * len(messages) if name in common else [_COLUMNS[name][1](message) for message in messages]
        for name in columns
    )
