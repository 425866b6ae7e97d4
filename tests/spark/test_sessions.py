"""What came out of order per session is told from ledgers, however they are cut into blocks and runs (SPEC 9)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from servicebus_pair.core.events import MessageRef, MessagesAccepted, Route
from servicebus_pair.core.ledger import Ledger
from servicebus_pair.spark.evidence import read_ledger
from servicebus_pair.spark.peeking import PEEKED
from servicebus_pair.spark.sessions import by_session, session_messages

BATCH = [f"m-{number}" for number in range(300)]


def accept(ledger: Ledger, ids: Sequence[str], at: float) -> None:
    ledger.observe(MessagesAccepted("flights", Route.PRIMARY, None, tuple(MessageRef(each, 9) for each in ids), at))


def arrived(
    spark: SparkSession, ids: Sequence[str], *, session: str | None = "s", location: str = "active"
) -> DataFrame:
    where = {"entity": "flights", "place": "flights", "location": location, "session": session}
    rows = ({"id": each, "number": number, **where} for number, each in enumerate(ids, 1))
    return spark.createDataFrame(PEEKED.table(rows))


def overtaken(messages: DataFrame) -> dict[str, str]:
    return {row["message_id"]: row["overtaken_by"] for row in messages.where("overtaken_by is not null").collect()}


def test_what_was_accepted_at_once_has_the_order_of_its_file_though_it_is_read_in_many_blocks(
    spark: SparkSession, tmp_path: Path
):
    with Ledger(tmp_path, run="r") as ledger:
        accept(ledger, BATCH, 1.0)
    spark.conf.set("spark.sql.files.maxPartitionBytes", "2000")
    try:
        records = read_ledger(spark, str(tmp_path))
        assert records.select("block").distinct().count() > 10, "or this shows nothing"
        assert overtaken(session_messages(records, arrived(spark, BATCH), run=None)) == {}
        late = overtaken(session_messages(records, arrived(spark, BATCH[::-1]), run=None))
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
    assert late == dict.fromkeys(BATCH[:-1], BATCH[-1])


def test_of_one_run_only_its_messages_count_as_they_stand_among_all(spark: SparkSession, tmp_path: Path):
    with Ledger(tmp_path, run="first") as first, Ledger(tmp_path, run="second") as second:
        accept(first, ["m-1"], 1.0)
        accept(second, ["m-2"], 2.0)
        accept(first, ["m-3", "m-4"], 3.0)
    records = read_ledger(spark, str(tmp_path))
    found = arrived(spark, ["m-2", "m-1", "m-3", "m-4"])
    of_first = session_messages(records, found, run="first")
    assert overtaken(of_first) == {"m-1": "m-2"}
    (row,) = by_session(of_first).collect()
    assert (row["session"], row["messages"], row["out_of_order"]) == ("s", 3, 1)
    assert overtaken(session_messages(records, found, run="second")) == {}


def test_what_is_of_no_session_or_has_not_arrived_stands_in_no_order(spark: SparkSession, tmp_path: Path):
    with Ledger(tmp_path, run="r") as ledger:
        accept(ledger, ["m-1", "m-2"], 1.0)
    records = read_ledger(spark, str(tmp_path))
    for found in (
        arrived(spark, ["m-2", "m-1"], session=None),
        arrived(spark, ["m-2", "m-1"], session=""),
        arrived(spark, ["m-2", "m-1"], location="scheduled"),
        arrived(spark, ["m-2", "m-1"], location="dead-letter"),
        arrived(spark, ["nobody's", "m-1"]).where("id != 'm-1'"),
    ):
        assert session_messages(records, found, run=None).isEmpty()
