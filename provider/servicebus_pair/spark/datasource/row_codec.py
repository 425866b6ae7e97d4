"""Encodes rows of the written table as messages; ``write_schema`` describes the columns. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from servicebus_pair.core.errors import InvalidMessageError
from servicebus_pair.core.model import entity_path
from servicebus_pair.core.protocol import AmqpMessage, BodyType, amqp_typed, new_message
from servicebus_pair.spark.base.message_ids import MessageIdGenerator
from servicebus_pair.spark.datasource.write_schema import COLUMN_TYPES, MAX_ID_LENGTH, MAX_TIME_TO_LIVE

_LONG: Final = 2**63
_OTHER_COLUMNS: Final = tuple(name for name in COLUMN_TYPES if name not in {"body", "messageId"})


@dataclass(frozen=True, slots=True)
class EncodedRow:
    """A row as a message.

    :param key: ordering key: the session id, the partition key, or ``None``.
    :param size: size of the body, bytes.
    :param row: what it was made from.
    """

    entity: str
    message: AmqpMessage
    key: str | None
    size: int
    row: Mapping[str, Any] = field(repr=False)


class RowEncoder:
    """Encodes the rows of one task.

    :param message_ids: generates ids for rows without one.
    :param entity: destination of rows without an ``entity`` value.
    """

    def __init__(self, message_ids: MessageIdGenerator, *, entity: str | None) -> None:
        self._message_ids = message_ids
        self._entity = entity
        self._number = 0

    def encode(self, row: Mapping[str, Any]) -> EncodedRow:
        """Encode the next row.

        :param row: values by column name, as Arrow returns them: a map is a list of pairs, a struct a mapping.
        :raises InvalidMessageError: naming the row and the column.
        """
        number = self._number
        self._number += 1
        try:
            return self._encode(row)
        except (ValueError, TypeError, OverflowError, InvalidMessageError) as error:
            where = f"row {number} of partition {self._message_ids.partition}"
            raise InvalidMessageError(f"{where} cannot be a message: {error}") from None

    def _encode(self, row: Mapping[str, Any]) -> EncodedRow:
        body, entity = row["body"], row.get("entity")
        if body is None:
            raise InvalidMessageError("column body is null: it is required")
        if row.get("bodyType", BodyType.DATA) not in (BodyType.DATA, None):
            raise InvalidMessageError(
                f"column bodyType is {row['bodyType']!r}: only data bodies can be written; without this column the "
                "body is written as data"
            )
        entity = entity_path("column entity", self._entity if entity is None else entity)
        message_id = row.get("messageId")
        if message_id == "":
            raise InvalidMessageError("column messageId is empty: it must be an id, or null to have one generated")
        if message_id is None:
            message_id = self._message_ids.message_id(body, (row.get(name) for name in _OTHER_COLUMNS))
        key = row.get("sessionId") or row.get("partitionKey")
        return EncodedRow(entity, _message(row, body, message_id), key, len(body), row)


def _message(row: Mapping[str, Any], body: bytes | str, message_id: str) -> AmqpMessage:
    get = row.get
    session_id, partition_key, time_to_live = get("sessionId"), get("partitionKey"), get("timeToLive")
    _check_lengths(messageId=message_id, sessionId=session_id, partitionKey=partition_key)
    if partition_key is not None and session_id is not None and partition_key != session_id:
        raise InvalidMessageError(f"column partitionKey is {partition_key!r}: it must equal sessionId {session_id!r}")
    return new_message(
        body,
        message_id=message_id,
        session_id=session_id,
        partition_key=partition_key,
        to=get("to"),
        subject=get("subject"),
        reply_to=get("replyTo"),
        correlation_id=get("correlationId"),
        content_type=get("contentType"),
        time_to_live=None if time_to_live is None else _duration(time_to_live),
        scheduled_enqueue_time=get("scheduledEnqueueTime"),
        application_properties=_properties(row) or None,
    )


def _check_lengths(**texts: str | None) -> None:
    for name, text in texts.items():
        if text is not None and len(text) > MAX_ID_LENGTH:
            raise InvalidMessageError(f"column {name} has {len(text)} characters: at most {MAX_ID_LENGTH} are allowed")


def _duration(seconds: Any) -> timedelta:
    # The range check comes first, because int() fails on NaN and infinity.
    if not 1 <= seconds <= MAX_TIME_TO_LIVE or seconds != int(seconds):
        raise InvalidMessageError(
            f"column timeToLive is {seconds}: it must be whole seconds from 1 to {MAX_TIME_TO_LIVE}"
        )
    return timedelta(seconds=int(seconds))


def _properties(row: Mapping[str, Any]) -> dict[str, Any]:
    properties = row.get("applicationProperties")
    if properties is None:
        return {}
    pairs = _parse_object(properties).items() if isinstance(properties, str) else _pairs(properties)
    return {name: _amqp_value(value, name) for name, value in pairs if value is not None}


def _pairs(properties: Any) -> Iterable[tuple[str, Any]]:
    return properties.items() if isinstance(properties, Mapping) else properties


def _parse_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidMessageError(f"column applicationProperties is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise InvalidMessageError("column applicationProperties is not a JSON object")
    return value


def _amqp_value(value: Any, name: str) -> Any:
    match value:
        case bool() | str() | float():
            return value
        case int() if not -_LONG <= value < _LONG:
            raise InvalidMessageError(f"column applicationProperties: {name} is {value}: a whole number has 64 bits")
        case int():
            # The SDK encodes a plain int as an AMQP int, which has 32 bits.
            return amqp_typed("LONG", value)
    raise InvalidMessageError(
        f"column applicationProperties: {name} is a {type(value).__name__}: "
        "allowed are string, long, double and boolean"
    )
