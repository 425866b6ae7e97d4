"""A row of the written table -> a message; the columns are described in ``schema``. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, cast

from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties

from servicebus_pair.core.amqp_types import typed
from servicebus_pair.core.errors import InvalidMessageError
from servicebus_pair.spark.naming import Position
from servicebus_pair.spark.schema import COLUMNS, LONGEST_ID, LONGEST_LIFE

__all__ = ["Row", "RowReader"]

_LONG: Final = 2**63
_NAMED: Final = tuple(name for name in COLUMNS if name not in {"body", "messageId"})
_PARTITION_KEY: Final = "x-opt-partition-key"
_SCHEDULED: Final = "x-opt-scheduled-enqueue-time"


@dataclass(frozen=True, slots=True)
class Row:
    """A row, read.

    :param key: what its order is kept within: a session id, a partition key, or nothing.
    :param size: bytes of the body.
    """

    entity: str
    message: AmqpAnnotatedMessage
    key: str | None
    size: int


class RowReader:
    """Makes messages of the rows of one task.

    :param position: of the task, for ids of rows that have none.
    :param entity: where rows go that do not say it themselves.
    """

    def __init__(self, position: Position, *, entity: str | None) -> None:
        self._position = position
        self._entity = entity
        self._number = 0

    def read(self, row: Mapping[str, Any]) -> Row:
        """Read the next row.

        :param row: values by column name, as Arrow gives them: a map is a list of pairs, a struct a mapping.
        :raises InvalidMessageError: naming the row and the column.
        """
        number = self._number
        self._number += 1
        try:
            return self._read(row, number)
        except (ValueError, TypeError, OverflowError, InvalidMessageError) as error:
            where = f"row {number} of partition {self._position.partition}"
            raise InvalidMessageError(f"{where} cannot be a message: {error}") from None

    def _read(self, row: Mapping[str, Any], number: int) -> Row:
        body, entity = row["body"], row.get("entity")
        if body is None:
            raise InvalidMessageError("column body is null: it is required")
        entity = self._entity if entity is None else entity
        if entity is None or not entity.strip():
            raise InvalidMessageError(f"column entity is {entity!r}: it must name a queue or topic")
        message_id = row.get("messageId")
        if message_id == "":
            raise InvalidMessageError("column messageId is empty: it must be an id, or null to have one made")
        if message_id is None:
            message_id = self._position.message_id(number, body, (row.get(name) for name in _NAMED))
        return Row(entity, _message(row, body, message_id), row.get("sessionId") or row.get("partitionKey"), len(body))


def _message(row: Mapping[str, Any], body: bytes | str, message_id: str) -> AmqpAnnotatedMessage:
    # In the SDK's AMQP form at once: its other form sets property by property, which takes longer than all else here.
    given = row.get
    session, partition, life = given("sessionId"), given("partitionKey"), given("timeToLive")
    _check_lengths(messageId=message_id, sessionId=session, partitionKey=partition)
    message = AmqpAnnotatedMessage(data_body=body, annotations=_annotations(session, partition, row))
    message.properties = AmqpMessageProperties(
        message_id=message_id,
        to=given("to"),
        subject=given("subject"),
        reply_to=given("replyTo"),
        correlation_id=given("correlationId"),
        content_type=given("contentType"),
        group_id=session,
    )
    message.application_properties = cast("Any", _properties(row) or None)  # typed values are the SDK's own
    if life is not None:
        message.header = AmqpMessageHeader(time_to_live=_milliseconds(life))
    return message


def _check_lengths(**texts: str | None) -> None:
    for name, text in texts.items():
        if text is not None and len(text) > LONGEST_ID:
            raise InvalidMessageError(f"column {name} has {len(text)} characters: at most {LONGEST_ID} are allowed")


def _annotations(session: str | None, partition: str | None, row: Mapping[str, Any]) -> dict[str, Any] | None:
    if partition is not None and session is not None and partition != session:
        raise InvalidMessageError(f"column partitionKey is {partition!r}: beside session {session!r} it must be that")
    given = {_SCHEDULED: row.get("scheduledEnqueueTime"), _PARTITION_KEY: partition}
    return {name: value for name, value in given.items() if value is not None} or None


def _milliseconds(seconds: Any) -> int:
    # In this order: what is not a number, or infinite, is no int.
    if not 1 <= seconds <= LONGEST_LIFE or seconds != int(seconds):
        raise InvalidMessageError(f"column timeToLive is {seconds}: it must be whole seconds from 1 to {LONGEST_LIFE}")
    return int(seconds) * 1000


def _properties(row: Mapping[str, Any]) -> dict[str, Any]:
    given = row.get("applicationProperties")
    if given is None:
        return {}
    pairs = _parsed(given).items() if isinstance(given, str) else _pairs(given)
    return {name: _amqp(value, name) for name, value in pairs if value is not None}


def _pairs(given: Any) -> Iterable[tuple[str, Any]]:
    return given.items() if isinstance(given, Mapping) else given


def _parsed(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidMessageError(f"column applicationProperties is not JSON: {error.msg}") from error
    if not isinstance(value, dict):
        raise InvalidMessageError("column applicationProperties is not a JSON object")
    return value


def _amqp(value: Any, name: str) -> Any:
    match value:
        case bool() | str() | float():
            return value
        case int() if not -_LONG <= value < _LONG:
            raise InvalidMessageError(f"column applicationProperties: {name} is {value}: a whole number has 64 bits")
        case int():
            # The SDK writes a plain int in 32 bits.
            return typed("LONG", value)
    raise InvalidMessageError(
        f"column applicationProperties: {name} is a {type(value).__name__}: "
        "allowed are string, long, double and boolean"
    )
