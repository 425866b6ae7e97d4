"""Finds messages that arrived out of session order, by running ``core.ledger.session_order_check`` on executors.

A session is streamed in order of arrival, so memory does not grow with its length.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby, islice, tee
from operator import itemgetter
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core.ledger import Arrival, Location, check_order
from servicebus_pair.spark.base.arrow_schema import RowSchema

__all__ = ["check_session_order", "count_by_session"]

_SESSION_KEY: Final = ("entity", "place", "session")
_SCHEMA: Final = RowSchema(
    dict.fromkeys((*_SESSION_KEY, "message_id"), "string") | {"number": "bigint", "overtaken_by": "string"}
)
_ARRIVED: Final = (str(Location.ACTIVE), str(Location.DEFERRED))
_ROWS_PER_BATCH: Final = 4096


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
    )
    if first_copies.isEmpty():
        # Most entities have no sessions: skip sorting their ledger.
        return ledger.sparkSession.createDataFrame([], _SCHEMA.ddl)
    sent = (
        ledger.where(F.col("kind") == "sent")
        .groupBy(F.lower("entity").alias("entity"), "id")
        .agg(
            F.min(F.struct("at", "block", "line")).alias("sent"),
            F.bool_or(F.expr("true") if run is None else F.col("run") == run).alias("wanted"),
        )
    )
    columns = ("entity", "place", "copy.session", "copy.number", "id", "sent.at", "sent.block", "sent.line", "wanted")
    return (
        first_copies.join(sent, ["entity", "id"])
        .select(*columns)
        .repartition(*_SESSION_KEY)
        .sortWithinPartitions(*_SESSION_KEY, "number")
        .mapInArrow(_check_partition, _SCHEMA.ddl)
    )


def count_by_session(messages: DataFrame) -> DataFrame:
    """Return a row per session and receiving entity: number of messages, and how many arrived out of order."""
    return messages.groupBy(*_SESSION_KEY).agg(
        F.count("*").alias("messages"), F.count("overtaken_by").alias("out_of_order")
    )


def _check_partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = chain.from_iterable(batch.to_pylist() for batch in batches)
    checked = chain.from_iterable(_check_session(group) for _, group in groupby(rows, key=itemgetter(*_SESSION_KEY)))
    while part := list(islice(checked, _ROWS_PER_BATCH)):
        yield _SCHEMA.batch(part)


def _check_session(session: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    rows, arrivals = tee(session)
    # Both iterators advance in step, so tee() never buffers the whole session.
    for row, check in zip(rows, check_order(map(_arrival, arrivals)), strict=True):
        if row["wanted"]:
            kept = {name: row[name] for name in (*_SESSION_KEY, "number")}
            yield kept | {"message_id": check.message_id, "overtaken_by": check.overtaken_by}


def _arrival(row: Mapping[str, Any]) -> Arrival:
    return Arrival(row["id"], (row["at"], row["block"], row["line"]))
