"""The table that is published: its columns, and the checks before anything is sent.

=========================  ===============================  =============================================
column                     type                             meaning
=========================  ===============================  =============================================
``destination``            string, required                 queue or topic path on the primary
``body``                   binary or string, required       a string is sent as UTF-8
``messageId``              string, required                 at most 128 characters; the same in a retry
``sessionId``              string                           at most 128 characters
``subject``                string
``correlationId``          string
``contentType``            string
``timeToLive``             number                           whole seconds, at least 1
``scheduledEnqueueTime``   timestamp                        to the millisecond
``applicationProperties``  map with string keys, or string  a string is a JSON object: string, number
                                                            without fraction (long), with one (double),
                                                            boolean; null is no property
=========================  ===============================  =============================================

A null is an absent value.
"""

from __future__ import annotations

from typing import Final

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

__all__ = ["COLUMNS", "REQUIRED", "check_columns", "check_rows"]

_TEXT: Final = (StringType,)
_PROPERTY_VALUES: Final = (StringType, IntegralType, FloatType, DoubleType, BooleanType)
_LONGEST_ID: Final = 128

COLUMNS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "destination": _TEXT,
    "body": (BinaryType, StringType),
    "messageId": _TEXT,
    "sessionId": _TEXT,
    "subject": _TEXT,
    "correlationId": _TEXT,
    "contentType": _TEXT,
    "timeToLive": (NumericType,),
    "scheduledEnqueueTime": (TimestampType,),
    "applicationProperties": (MapType, StringType),
}
REQUIRED: Final = ("destination", "body", "messageId")


def check_columns(schema: StructType) -> None:
    """Refuse a table that cannot be published, by its columns alone.

    :raises ConfigurationError: naming the column, its type and what is allowed.
    """
    for name in REQUIRED:
        if name not in schema.names:
            raise ConfigurationError(f"column {name} is missing: required are {', '.join(REQUIRED)}")
    for field in schema:
        if field.name not in COLUMNS:
            raise ConfigurationError(f"column {field.name} is unknown: allowed are {', '.join(COLUMNS)}")
        if not _fits(field.name, field.dataType):
            allowed = " or ".join(kind.__name__.removesuffix("Type").lower() for kind in COLUMNS[field.name])
            raise ConfigurationError(f"column {field.name} is {field.dataType.simpleString()}: allowed is {allowed}")


def _fits(name: str, kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return MapType in COLUMNS[name] and (
            isinstance(kind.keyType, StringType) and isinstance(kind.valueType, _PROPERTY_VALUES)
        )
    return isinstance(kind, COLUMNS[name])


def check_rows(df: DataFrame) -> None:
    """Refuse a table with a row that cannot be sent; reads the table once, on the executors.

    :raises ConfigurationError: naming the column, how many rows and what is allowed.
    """
    checks = {(name, allowed): F.count_if(wrong) for name, allowed, wrong in _wrong_rows(df) if name in df.columns}
    counted = df.agg(*(count.alias(str(index)) for index, count in enumerate(checks.values()))).first()
    for (name, allowed), count in zip(checks, counted or (), strict=True):
        if count:
            raise ConfigurationError(f"column {name} is wrong in {count} rows: {allowed}; nothing was sent")


def _wrong_rows(df: DataFrame) -> list[tuple[str, str, Column]]:
    rules = [
        ("destination", "it must name a queue or topic", F.coalesce(F.trim("destination"), F.lit("")) == ""),
        ("body", "it must not be null", F.col("body").isNull()),
        ("messageId", "it must not be null or empty", F.coalesce(F.col("messageId"), F.lit("")) == ""),
        ("messageId", f"it must have at most {_LONGEST_ID} characters", F.length("messageId") > _LONGEST_ID),
        ("sessionId", f"it must have at most {_LONGEST_ID} characters", F.length("sessionId") > _LONGEST_ID),
        (
            "timeToLive",
            "it must be whole seconds from 1",
            (F.col("timeToLive") < 1) | (F.col("timeToLive") != F.floor("timeToLive")),
        ),
        (
            "scheduledEnqueueTime",
            "it must not be before 1970",
            F.col("scheduledEnqueueTime") < F.timestamp_seconds(F.lit(0)),
        ),
    ]
    if "applicationProperties" in df.columns and isinstance(df.schema["applicationProperties"].dataType, StringType):
        rules.append(("applicationProperties", "it must be a JSON object of plain values", _wrong_json()))
    return rules


def _wrong_json() -> Column:
    text = F.col("applicationProperties")
    read = F.from_json(text, "map<string,variant>")
    nested = F.exists(F.map_values(read), lambda value: F.schema_of_variant(value).rlike("^(OBJECT|ARRAY)"))
    return text.isNotNull() & (read.isNull() | nested)
