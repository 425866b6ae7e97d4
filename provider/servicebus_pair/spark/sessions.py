"""Which messages of a session came out of order, judged on executors with the pure rule of ``core.overtaking``.

A session is streamed in the order of arrival, so memory does not grow with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, groupby, islice, tee
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core.overtaking import Arrival, in_order
from servicebus_pair.core.reconcile import Location
from servicebus_pair.spark.shape import Shape

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["by_session", "session_messages"]

_SESSION: Final = ("entity", "place", "session")
_JUDGED: Final = Shape(
    dict.fromkeys((*_SESSION, "message_id"), "string") | {"number": "bigint", "overtaken_by": "string"}
)
_ARRIVED: Final = (str(Location.ACTIVE), str(Location.DEFERRED))
_ROWS: Final = 4096


def session_messages(ledger: DataFrame, arrived: DataFrame, *, run: str | None) -> DataFrame:
    """Answer a row per message of a session that a place holds, with ``number`` and ``overtaken_by``.

    The number is its place in the order of arrival. What overtook it was accepted later and arrived before.

    :param ledger: what ``read_ledger`` answers; who is not in it stands in no order.
    :param arrived: what ``peeked`` answers about the places.
    :param run: only what this run sent, as it stands among what all have sent.
    """
    first = (
        arrived.where(F.col("location").isin(*_ARRIVED) & (F.col("session") != ""))
        .groupBy(F.lower("entity").alias("entity"), "place", "id")
        .agg(F.min(F.struct("number", "session")).alias("copy"))
    )
    if first.isEmpty():
        # Most entities hold no sessions: their ledger need not be put in order.
        return ledger.sparkSession.createDataFrame([], _JUDGED.ddl)
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
        first.join(sent, ["entity", "id"])
        .select(*columns)
        .repartition(*_SESSION)
        .sortWithinPartitions(*_SESSION, "number")
        .mapInArrow(_task, _JUDGED.ddl)
    )


def by_session(messages: DataFrame) -> DataFrame:
    """Answer a row per session and place: how many messages, and how many of them came out of order."""
    return messages.groupBy(*_SESSION).agg(
        F.count("*").alias("messages"), F.count("overtaken_by").alias("out_of_order")
    )


def _task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = chain.from_iterable(batch.to_pylist() for batch in batches)
    judged = chain.from_iterable(_judged(group) for _, group in groupby(rows, key=itemgetter(*_SESSION)))
    while part := list(islice(judged, _ROWS)):
        yield _JUDGED.batch(part)


def _judged(session: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    rows, again = tee(session)
    # Both are walked in step, so that no session is held as a whole.
    for row, overtaking in zip(rows, in_order(map(_arrival, again)), strict=True):
        if row["wanted"]:
            kept = {name: row[name] for name in (*_SESSION, "number")}
            yield kept | {"message_id": overtaking.message_id, "overtaken_by": overtaking.by}


def _arrival(row: Mapping[str, Any]) -> Arrival:
    return Arrival(row["id"], (row["at"], row["block"], row["line"]))
