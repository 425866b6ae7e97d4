"""The columns of a read, and the conversion of a peeked message to a row.

=============================  =========  ==================================================================
column                         type       meaning
=============================  =========  ==================================================================
``namespace``                  string     name of the namespace
``entity``                     string     path of the queue or subscription
``subQueue``                   string     ``main``, ``deadLetter`` or ``transferDeadLetter``
``body``                       binary     a data body as is; another body as UTF-8 text or JSON
``bodyType``                   string     ``data``, ``value`` or ``sequence``
``messageId``                  string
``sessionId``                  string
``subject``                    string
``correlationId``              string
``contentType``                string
``replyTo``                    string
``to``                         string
``partitionKey``               string
``timeToLive``                 double     seconds
``scheduledEnqueueTime``       timestamp
``applicationProperties``      string     a JSON object, in the form that a write accepts
``sequenceNumber``             bigint     position in the entity; the basis of offsets
``enqueuedSequenceNumber``     bigint     the number before it was forwarded or dead-lettered
``enqueuedTime``               timestamp
``state``                      string     ``active``, ``deferred`` or ``scheduled``
``deliveryCount``              int        deliveries so far
``deadLetterReason``           string
``deadLetterErrorDescription`` string
``deadLetterSource``           string
=============================  =========  ==================================================================
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final

import pyarrow as pa
from azure.servicebus import ServiceBusMessageState, ServiceBusReceivedMessage
from azure.servicebus.amqp import AmqpMessageBodyType
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.protocol import text_keys
from servicebus_pair.spark.base.offsets import PeekTarget

__all__ = ["SCHEMA", "check_schema", "to_record_batch"]

_TEXT: Final = StringType()
_COLUMNS: Final[dict[str, DataType]] = {
    "namespace": _TEXT,
    "entity": _TEXT,
    "subQueue": _TEXT,
    "body": BinaryType(),
    "bodyType": _TEXT,
    "messageId": _TEXT,
    "sessionId": _TEXT,
    "subject": _TEXT,
    "correlationId": _TEXT,
    "contentType": _TEXT,
    "replyTo": _TEXT,
    "to": _TEXT,
    "partitionKey": _TEXT,
    "timeToLive": DoubleType(),
    "scheduledEnqueueTime": TimestampType(),
    "applicationProperties": _TEXT,
    "sequenceNumber": LongType(),
    "enqueuedSequenceNumber": LongType(),
    "enqueuedTime": TimestampType(),
    "state": _TEXT,
    "deliveryCount": IntegerType(),
    "deadLetterReason": _TEXT,
    "deadLetterErrorDescription": _TEXT,
    "deadLetterSource": _TEXT,
}
SCHEMA: Final = StructType([StructField(name, kind) for name, kind in _COLUMNS.items()])
_ARROW: Final[Mapping[type[DataType], pa.DataType]] = {
    StringType: pa.string(),
    BinaryType: pa.binary(),
    DoubleType: pa.float64(),
    LongType: pa.int64(),
    IntegerType: pa.int32(),
    TimestampType: pa.timestamp("us", tz="UTC"),
}
_ARROW_SCHEMA: Final = pa.schema([(name, _ARROW[type(kind)]) for name, kind in _COLUMNS.items()])
_BODY_TYPES: Final = {
    AmqpMessageBodyType.DATA: "data",
    AmqpMessageBodyType.VALUE: "value",
    AmqpMessageBodyType.SEQUENCE: "sequence",
}
_STATES: Final = {
    ServiceBusMessageState.ACTIVE: "active",
    ServiceBusMessageState.DEFERRED: "deferred",
    ServiceBusMessageState.SCHEDULED: "scheduled",
}


def check_schema(schema: StructType) -> None:
    """Check a schema given by the user. :raises ConfigurationError: it differs from :data:`SCHEMA`."""
    given, expected = ([(field.name, field.dataType) for field in each] for each in (schema, SCHEMA))
    if given != expected:
        raise ConfigurationError(
            f"the schema is {schema.simpleString()}: remove it, the schema is fixed: {SCHEMA.simpleString()}"
        )


def to_record_batch(
    messages: Sequence[ServiceBusReceivedMessage], *, namespace: str, target: PeekTarget
) -> pa.RecordBatch:
    """Return peeked messages as rows."""
    common = {"namespace": namespace, "entity": target.path, "subQueue": target.sub_queue}
    return pa.RecordBatch.from_pylist([common | _row(message) for message in messages], schema=_ARROW_SCHEMA)


def _row(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    time_to_live = message.time_to_live
    return {
        "body": _body(message),
        "bodyType": _BODY_TYPES[message.body_type],
        "messageId": _text(message.message_id),
        "sessionId": _text(message.session_id),
        "subject": _text(message.subject),
        "correlationId": _text(message.correlation_id),
        "contentType": _text(message.content_type),
        "replyTo": _text(message.reply_to),
        "to": _text(message.to),
        "partitionKey": _text(message.partition_key),
        "timeToLive": None if time_to_live is None else time_to_live.total_seconds(),
        "scheduledEnqueueTime": message.scheduled_enqueue_time_utc,
        "applicationProperties": _properties(message),
        "sequenceNumber": message.sequence_number,
        "enqueuedSequenceNumber": message.enqueued_sequence_number,
        "enqueuedTime": message.enqueued_time_utc,
        "state": _STATES[message.state],
        "deliveryCount": message.delivery_count,
        "deadLetterReason": _text(message.dead_letter_reason),
        "deadLetterErrorDescription": _text(message.dead_letter_error_description),
        "deadLetterSource": _text(message.dead_letter_source),
    }


def _body(message: ServiceBusReceivedMessage) -> bytes:
    if message.body_type is AmqpMessageBodyType.DATA:
        return b"".join(message.body)
    body = message.body if message.body_type is AmqpMessageBodyType.VALUE else list(message.body)
    match body:
        case bytes():
            return body
        case str():
            return body.encode()
    return json.dumps(_json_value(body), ensure_ascii=False).encode()


def _properties(message: ServiceBusReceivedMessage) -> str | None:
    given = message.application_properties
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
