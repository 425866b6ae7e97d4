"""The table that is written: its columns, and the checks before anything is sent.

=========================  ===============================  =============================================
column                     type                             meaning
=========================  ===============================  =============================================
``body``                   binary or string, required       a string is sent as UTF-8
``entity``                 string                           queue or topic path on the primary; required
                                                            where the option ``entity`` is not given
``messageId``              string                           at most 128 characters; where it is null, one
                                                            is made of run and position
``sessionId``              string                           at most 128 characters
``subject``                string
``correlationId``          string
``contentType``            string
``replyTo``                string
``to``                     string
``partitionKey``           string                           at most 128 characters; that of a message with
                                                            a session is its session id
``timeToLive``             number                           whole seconds, from 1 (the SDK has no shorter) to
                                                            4294967, the most that AMQP has: 49 days
``scheduledEnqueueTime``   timestamp                        to the millisecond
``applicationProperties``  map with string keys, struct, or  values are string, whole number (long), float,
                           string                           double or boolean; a string is a JSON object of
                                                            these; null is no property
=========================  ===============================  =============================================

A null is an absent value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from servicebus_pair.spark.likeness import unknown

__all__ = ["COLUMNS", "LONGEST_ID", "LONGEST_LIFE", "check_columns", "check_rows"]

_TEXT: Final = (StringType,)
_PROPERTY_VALUES: Final = (StringType, IntegralType, FloatType, DoubleType, BooleanType)
LONGEST_ID: Final = 128
# Milliseconds in 32 bits, as AMQP has it.
LONGEST_LIFE: Final = 4_294_967

COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
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
_ALLOWED: Final = {
    "applicationProperties": "a map with string keys, or a struct, of string, whole number, float, double or boolean; "
    "or string, a JSON object"
}
# What other sources call the same.
_ELSEWHERE: Final = {
    **dict.fromkeys(("value", "payload", "message", "data"), "body"),
    **dict.fromkeys(("queue", "topic", "destination"), "entity"),
    **dict.fromkeys(("properties", "headers", "userproperties"), "applicationProperties"),
    "id": "messageId",
    "label": "subject",
    "session": "sessionId",
    "ttl": "timeToLive",
}


def check_columns(schema: StructType, *, entity: str | None) -> None:
    """Refuse a table that cannot be written, by its columns alone.

    :param entity: where rows go that do not say it themselves.
    :raises ConfigurationError: naming the column, its type and what is allowed.
    """
    if "body" not in schema.names:
        raise ConfigurationError(_no_body(schema.names))
    if entity is None and "entity" not in schema.names:
        raise ConfigurationError("column entity is missing, and so is the option entity: give one of them")
    for field in schema:
        if field.name not in COLUMNS:
            raise ConfigurationError(unknown("column", field.name, allowed=COLUMNS, elsewhere=_ELSEWHERE))
        if not _fits(field.name, field.dataType):
            kinds = " or ".join(kind.__name__.removesuffix("Type").lower() for kind in COLUMNS[field.name])
            allowed = _ALLOWED.get(field.name, kinds)
            raise ConfigurationError(f"column {field.name} is {field.dataType.simpleString()}: allowed is {allowed}")
    for name in COLUMNS:
        if schema.names.count(name) > 1:
            raise ConfigurationError(f"column {name} is there {schema.names.count(name)} times: allowed is once")


def _no_body(names: Sequence[str]) -> str:
    return (
        f"column body is missing: it is the one that is required; there are {', '.join(names)}: make it of these, such "
        'as by df.selectExpr("to_json(struct(*)) AS body")'
    )


def _fits(name: str, kind: DataType) -> bool:
    if not isinstance(kind, COLUMNS[name]):
        return False
    match kind:
        case MapType():
            return isinstance(kind.keyType, StringType) and isinstance(kind.valueType, _PROPERTY_VALUES)
        case StructType():
            return all(isinstance(field.dataType, _PROPERTY_VALUES) for field in kind)
    return True


def check_rows(df: DataFrame, *, entity: str | None) -> None:
    """Refuse a table with a row that cannot be sent; reads the table once, on the executors.

    :param entity: where rows go that do not say it themselves.
    :raises ConfigurationError: naming the column, how many rows and what is allowed.
    """
    checks = {(name, allowed): F.count_if(wrong) for name, allowed, wrong in _wrong_rows(df, entity)}
    counted = df.agg(*(count.alias(str(index)) for index, count in enumerate(checks.values()))).first()
    for (name, allowed), count in zip(checks, counted or (), strict=True):
        if count:
            raise ConfigurationError(f"column {name} is wrong in {count} rows: {allowed}; nothing was sent")


def _wrong_rows(df: DataFrame, entity: str | None) -> Iterator[tuple[str, str, Column]]:
    yield "body", "it must not be null", F.col("body").isNull()
    rules = (_wrong_entity(entity), *_WRONG_TEXTS, *_WRONG_TIMES)
    yield from ((name, allowed, wrong()) for name, allowed, wrong in rules if name in df.columns)
    if {"sessionId", "partitionKey"} <= set(df.columns):
        yield "partitionKey", "beside a session id it must be that", F.col("partitionKey") != F.col("sessionId")
    if "applicationProperties" in df.columns and isinstance(df.schema["applicationProperties"].dataType, StringType):
        yield "applicationProperties", "it must be a JSON object of plain values", _wrong_json()


_Rule: TypeAlias = tuple[str, str, Callable[[], Column]]


def _wrong_entity(entity: str | None) -> _Rule:
    def wrong() -> Column:
        return F.coalesce(F.trim("entity"), F.lit("" if entity is None else entity)) == ""

    return "entity", "it must name a queue or topic", wrong


def _too_long(name: str) -> _Rule:
    return name, f"it must have at most {LONGEST_ID} characters", lambda: F.length(name) > LONGEST_ID


_WRONG_TEXTS: Final[tuple[_Rule, ...]] = (
    ("messageId", "it must not be empty", lambda: F.col("messageId") == ""),
    _too_long("messageId"),
    _too_long("sessionId"),
    _too_long("partitionKey"),
)
_WRONG_TIMES: Final[tuple[_Rule, ...]] = (
    (
        "timeToLive",
        f"it must be whole seconds from 1 to {LONGEST_LIFE}",
        # Not a number is more than any number.
        lambda: ~F.col("timeToLive").between(1, LONGEST_LIFE) | (F.col("timeToLive") != F.floor("timeToLive")),
    ),
    (
        "scheduledEnqueueTime",
        "it must not be before 1970",
        lambda: F.col("scheduledEnqueueTime") < F.timestamp_seconds(F.lit(0)),
    ),
)


def _wrong_json() -> Column:
    text = F.col("applicationProperties")
    read = F.from_json(text, "map<string,variant>")
    nested = F.exists(F.map_values(read), lambda value: F.schema_of_variant(value).rlike("^(OBJECT|ARRAY)"))
    return text.isNotNull() & (read.isNull() | nested)
