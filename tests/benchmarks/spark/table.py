"""The messages that all ways of publishing send: as a table, and as a loop over the bare SDK makes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from azure.servicebus import ServiceBusMessage
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

__all__ = ["BODY_BYTES", "messages", "table"]

BODY_BYTES: Final = 256
_SUBJECT: Final = "departure"
_CONTENT_TYPE: Final = "application/json"
_CARRIER: Final = "UA"


def table(spark: SparkSession, count: int) -> DataFrame:
    """Answer the rows of ``count`` messages, which Spark makes as it goes."""
    rows = spark.range(count)
    return rows.select(
        _body().alias("body"),
        F.concat(F.lit("m-"), F.col("id")).alias("messageId"),
        F.lit(_SUBJECT).alias("subject"),
        F.lit(_CONTENT_TYPE).alias("contentType"),
        F.create_map(F.lit("carrier"), F.lit(_CARRIER)).alias("applicationProperties"),
    )


def messages(count: int) -> Iterator[ServiceBusMessage]:
    """Make the same messages with the SDK."""
    for number in range(count):
        yield ServiceBusMessage(
            f'{{"flight": {number}}}'.ljust(BODY_BYTES),
            message_id=f"m-{number}",
            subject=_SUBJECT,
            content_type=_CONTENT_TYPE,
            application_properties={"carrier": _CARRIER},
        )


def _body() -> Column:
    return F.rpad(F.concat(F.lit('{"flight": '), F.col("id"), F.lit("}")), BODY_BYTES, " ")
