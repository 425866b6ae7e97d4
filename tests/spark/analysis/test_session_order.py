"""Session order is checked from ledgers, independent of file blocks and runs (SPEC section 9)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from servicebus_pair.core.ledger.writer import Ledger
from servicebus_pair.core.model.events import MessageRef, MessagesAccepted, Route
from servicebus_pair.spark.analysis.observations import read_ledger
from servicebus_pair.spark.analysis.peeking import PEEKED_SCHEMA
from servicebus_pair.spark.analysis.session_order import check_session_order, count_by_session

BATCH = [f"m-{number}" for number in range(300)]


def accept(ledger: Ledger, ids: Sequence[str], at: float) -> None:
    ledger.observe(MessagesAccepted("flights", Route.PRIMARY, None, tuple(MessageRef(each, 9) for each in ids), at))


def arrived(
    spark: SparkSession, ids: Sequence[str], *, session: str | None = "s", location: str = "active"
) -> DataFrame:
    where = {"entity": "flights", "place": "flights", "location": location, "session": session}
    rows = ({"id": each, "number": number, **where} for number, each in enumerate(ids, 1))
    return spark.createDataFrame(PEEKED_SCHEMA.table(rows))


def overtaken(messages: DataFrame) -> dict[str, str]:
    return {row["message_id"]: row["overtaken_by"] for row in messages.where("overtaken_by is not null").collect()}


def test_simultaneous_sends_keep_the_file_order_across_blocks(spark: SparkSession, tmp_path: Path):
    with Ledger(tmp_path, run="r") as ledger:
        accept(ledger, BATCH, 1.0)
    spark.conf.set("spark.sql.files.maxPartitionBytes", "2000")
    try:
        records = read_ledger(spark, str(tmp_path))
        assert records.select("block").distinct().count() > 10, "or this shows nothing"
        assert overtaken(check_session_order(records, arrived(spark, BATCH), run=None)) == {}
        late = overtaken(check_session_order(records, arrived(spark, BATCH[::-1]), run=None))
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert late == dict.fromkeys(BATCH[:-1], BATCH[-1])


def test_run_filter_keeps_the_order_among_all_runs(spark: SparkSession, tmp_path: Path):
    with Ledger(tmp_path, run="first") as first, Ledger(tmp_path, run="second") as second:
        accept(first, ["m-1"], 1.0)
        accept(second, ["m-2"], 2.0)
        accept(first, ["m-3", "m-4"], 3.0)
    records = read_ledger(spark, str(tmp_path))
    found = arrived(spark, ["m-2", "m-1", "m-3", "m-4"])
    of_first = check_session_order(records, found, run="first")
    assert overtaken(of_first) == {"m-1": "m-2"}
    (row,) = count_by_session(of_first).collect()
    assert (row["session"], row["messages"], row["out_of_order"]) == ("s", 3, 1)
    assert overtaken(check_session_order(records, found, run="second")) == {}


def test_messages_without_session_or_arrival_are_ignored(spark: SparkSession, tmp_path: Path):
    with Ledger(tmp_path, run="r") as ledger:
        accept(ledger, ["m-1", "m-2"], 1.0)
    records = read_ledger(spark, str(tmp_path))
    for found in (
        arrived(spark, ["m-2", "m-1"], session=None),
        arrived(spark, ["m-2", "m-1"], session=""),
        arrived(spark, ["m-2", "m-1"], location="scheduled"),
        arrived(spark, ["m-2", "m-1"], location="dead-letter"),
        arrived(spark, ["unrecorded", "m-1"]).where("id != 'm-1'"),
    ):
        assert check_session_order(records, found, run=None).isEmpty()
