"""The rule of ``core.ledger.session_order_check`` as a window: which messages arrived out of session order.

A window streams a session in order of arrival, so memory does not grow with its length.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core.ledger import Location

_SESSION_KEY: Final = ("entity", "place", "session")
_BY: Final = "overtaken_by"
_ARRIVED: Final = (str(Location.ACTIVE), str(Location.DEFERRED))


def check_session_order(ledger: DataFrame, arrived: DataFrame, *, run: str | None) -> DataFrame:
    """Return a row per session message that an entity holds, with its sequence ``number`` and ``overtaken_by``.

    The message in ``overtaken_by`` was accepted later and arrived earlier.

    :param ledger: result of ``read_ledger``; messages without a record are ignored.
    :param arrived: result of ``peek_messages`` for the receiving entities.
    :param run: return only messages that this run sent; their order is checked among the messages of all runs.
    """
    first_copies = (
        arrived.where(F.col("location").isin(*_ARRIVED) & (F.col("session") != ""))
        .groupBy(F.lower("entity").alias("entity"), "place", "id")
        .agg(F.min(F.struct("number", "session")).alias("copy"))
        .select("entity", "place", "id", "copy.session", "copy.number")
    )
    if first_copies.isEmpty():
        # Most entities have no sessions: skip sorting their ledger.
        return first_copies.select(*_SESSION_KEY, F.col("id").alias("message_id"), "number", F.lit("").alias(_BY))
    sent = (
        ledger.where(F.col("kind") == "sent")
        .groupBy(F.lower("entity").alias("entity"), "id")
        .agg(
            F.min(F.struct("at", "block", "line")).alias("sent"),
            F.bool_or(F.expr("true") if run is None else F.col("run") == run).alias("wanted"),
        )
    )
    before = Window.partitionBy(*_SESSION_KEY).orderBy("number").rowsBetween(Window.unboundedPreceding, -1)
    # Of messages that were accepted at once, the one that arrived last counts.
    latest = F.max(F.struct("sent", "number", "id")).over(before)
    return (
        first_copies.join(sent, ["entity", "id"])
        .withColumn("latest", latest)
        .where("wanted")
        .select(
            *_SESSION_KEY,
            F.col("id").alias("message_id"),
            "number",
            F.when(F.col("sent") < F.col("latest.sent"), F.col("latest.id")).alias(_BY),
        )
    )


def count_by_session(messages: DataFrame) -> DataFrame:
    """Return a row per session and receiving entity: number of messages, and how many arrived out of order."""
    return messages.groupBy(*_SESSION_KEY).agg(F.count("*").alias("messages"), F.count(_BY).alias("out_of_order"))
