"""The columns of a write (``docs/spark.md`` explains them), and the checks that run before anything is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    NumericType,
    StringType,
    StructType,
    TimestampType,
)

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.model import CONTROL_CHARACTERS
from servicebus_pair.spark.datasource.option_table import unknown_name_message

_TEXT: Final = (StringType,)
_PROPERTY_VALUES: Final = (StringType, IntegralType, FloatType, DoubleType, BooleanType)
MAX_ID_LENGTH: Final = 128
# Seconds. AMQP's ttl header is an unsigned 32-bit number of milliseconds.
MAX_TIME_TO_LIVE: Final = 4_294_967

COLUMN_TYPES: Final[dict[str, tuple[type[DataType], ...]]] = {
    "body": (BinaryType, StringType),
    "entity": _TEXT,
    "messageId": _TEXT,
    "sessionId": _TEXT,
    "subject": _TEXT,
    "correlationId": _TEXT,
    "contentType": _TEXT,
    "replyTo": _TEXT,
    "to": _TEXT,
    "partitionKey": _TEXT,
    "timeToLive": (NumericType,),
    "scheduledEnqueueTime": (TimestampType,),
    "applicationProperties": (MapType, StructType, StringType),
}
# Columns of a read that say where a message was; they are ignored, so that what was read can be written.
READ_ONLY_COLUMNS: Final = frozenset(
    {
        *("namespace", "subQueue", "bodyType", "sequenceNumber", "enqueuedSequenceNumber", "enqueuedTime", "state"),
        *("deliveryCount", "deadLetterReason", "deadLetterErrorDescription", "deadLetterSource"),
    }
)
_ALLOWED: Final = {
    "applicationProperties": "a map with string keys, or a struct, of string, whole number, float, double or boolean; "
    "or string, a JSON object"
}
# Column names of other data sources.
_ALIASES: Final = {
    **dict.fromkeys(("value", "payload", "message", "data"), "body"),
    **dict.fromkeys(("queue", "topic", "destination"), "entity"),
    **dict.fromkeys(("properties", "headers", "userproperties"), "applicationProperties"),
    "id": "messageId",
    "label": "subject",
    "session": "sessionId",
    "ttl": "timeToLive",
}


def check_columns(schema: StructType, *, entity: str | None) -> None:
    """Check column names and types.

    :param entity: destination of rows without an ``entity`` value.
    :raises ConfigurationError: naming the column, its type and what is allowed.
    """
    if "body" not in schema.names:
        raise ConfigurationError(
            f"column body is missing: it is required; the columns are {', '.join(schema.names)}: derive it from these, "
            'for example with df.selectExpr("to_json(struct(*)) AS body")'
        )
    if entity is None and "entity" not in schema.names:
        raise ConfigurationError("column entity and option entity are both missing: one of them is required")
    for field in schema:
        if field.name in READ_ONLY_COLUMNS:
            continue
        if field.name not in COLUMN_TYPES:
            message = unknown_name_message("column", field.name, allowed=COLUMN_TYPES, aliases=_ALIASES)
            raise ConfigurationError(message)
        if not _fits(field.name, field.dataType):
            kinds = " or ".join(kind.__name__.removesuffix("Type").lower() for kind in COLUMN_TYPES[field.name])
            allowed = _ALLOWED.get(field.name, kinds)
            raise ConfigurationError(f"column {field.name} is {field.dataType.simpleString()}: allowed is {allowed}")
    for name in COLUMN_TYPES:
        if schema.names.count(name) > 1:
            raise ConfigurationError(f"column {name} occurs {schema.names.count(name)} times: allowed is once")


def _fits(name: str, kind: DataType) -> bool:
    if not isinstance(kind, COLUMN_TYPES[name]):
        return False
    match kind:
        case MapType():
            return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, _PROPERTY_VALUES)
        case StructType():
            return all(isinstance(field.dataType, _PROPERTY_VALUES) for field in kind)
    return True


def check_rows(df: DataFrame, *, entity: str | None) -> None:
    """Check the values of all rows; reads the table once, on the executors.

    :param entity: destination of rows without an ``entity`` value.
    :raises ConfigurationError: naming the column, how many rows and what is allowed.
    """
    checks = {(name, allowed): F.count_if(invalid) for name, allowed, invalid in _checks(df, entity)}
    counts = df.agg(*(count.alias(str(index)) for index, count in enumerate(checks.values()))).first()
    for (name, allowed), count in zip(checks, counts or (), strict=True):
        if count:
            raise ConfigurationError(f"column {name} is invalid in {count} rows: {allowed}; nothing was sent")


def _checks(df: DataFrame, entity: str | None) -> Iterator[tuple[str, str, Column]]:
    """Yield column name, what is allowed, and a condition that is true for invalid rows."""
    yield "body", "it must not be null", F.col("body").isNull()
    if "entity" in df.columns:
        destination = F.coalesce(F.trim("entity"), F.lit("" if entity is None else entity))
        control = F.col("entity").rlike(CONTROL_CHARACTERS.pattern)
        yield "entity", "it must name a queue or topic", (destination == "") | control
    yield from ((name, allowed, invalid()) for name, allowed, invalid in _RULES if name in df.columns)
    if {"sessionId", "partitionKey"} <= set(df.columns):
        yield "partitionKey", "it must equal sessionId", F.col("partitionKey") != F.col("sessionId")
    if "applicationProperties" in df.columns and isinstance(df.schema["applicationProperties"].dataType, StringType):
        yield "applicationProperties", "it must be a JSON object of plain values", _invalid_json()


# The condition is a function because a Spark column needs an active session.
_Rule: TypeAlias = tuple[str, str, Callable[[], Column]]


def _too_long(name: str) -> _Rule:
    return name, f"it must have at most {MAX_ID_LENGTH} characters", lambda: F.length(name) > MAX_ID_LENGTH


_RULES: Final[tuple[_Rule, ...]] = (
    ("messageId", "it must not be empty", lambda: F.col("messageId") == ""),
    _too_long("messageId"),
    _too_long("sessionId"),
    _too_long("partitionKey"),
    (
        "timeToLive",
        f"it must be whole seconds from 1 to {MAX_TIME_TO_LIVE}",
        # Spark orders NaN above every number, so it is outside the range.
        lambda: ~F.col("timeToLive").between(1, MAX_TIME_TO_LIVE) | (F.col("timeToLive") != F.floor("timeToLive")),
    ),
    (
        "scheduledEnqueueTime",
        "it must not be before 1970",
        lambda: F.col("scheduledEnqueueTime") < F.timestamp_seconds(F.lit(0)),
    ),
)


def _invalid_json() -> Column:
    text = F.col("applicationProperties")
    properties = F.from_json(text, "map<string,variant>")
    nested = F.exists(F.map_values(properties), lambda value: F.schema_of_variant(value).rlike("^(OBJECT|ARRAY)"))
    return text.isNotNull() & (properties.isNull() | nested)
