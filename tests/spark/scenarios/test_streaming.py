"""Streaming reads and writes: restarted at the stored offsets, idempotent by batch."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit
from pyspark.sql.streaming.query import StreamingQuery

from servicebus_pair.core.ledger.manifest import PublishManifest
from tests.spark.conftest import CANARY, Pair, Session
from tests.spark.support.messages import numbered, receiver_of, send

SECONDS = 90


def copied(spark: SparkSession, pair: Pair, folder: Path, *, of: str, to: str, **options: Any) -> StreamingQuery:
    """Copy the bodies of what is there now, in batches of at most ten; a query continues where the last one ended."""
    source = spark.readStream.format("servicebus").option("credential", pair.reference).option("entity", of)
    rows = source.option("maxMessagesPerTrigger", 10).options(**options).load().select("body")
    sink = rows.writeStream.format("servicebus").option("credential", pair.reference).option("entity", to)
    sink = sink.option("manifest", str(folder / "manifests")).option("checkpointLocation", str(folder / "checkpoint"))
    return sink.trigger(availableNow=True).start()


def ended(query: StreamingQuery) -> list[int]:
    """Wait for the end of a query; return how many rows its batches had."""
    assert query.awaitTermination(SECONDS)
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def arrived(pair: Pair, queue: str) -> Counter[tuple[str, bytes]]:
    return Counter((found.key[1], found.content.body) for found in pair.peek(queue))


def forget_commit(folder: Path, batch: int) -> None:
    for name in (f"{batch}", f".{batch}.crc"):
        (folder / "checkpoint" / "commits" / name).unlink()


@pytest.mark.slow
def test_stream_copy_survives_restart_and_replay(session: Session, pair: Pair, tmp_path: Path):
    spark, source, copy = session.spark, pair.fresh_queue(), pair.fresh_queue()
    send(pair, source, *numbered(25))
    query = copied(spark, pair, tmp_path, of=source, to=copy)
    assert ended(query) == [10, 10, 5]
    first = arrived(pair, copy)
    assert sorted(body for _, body in first) == sorted(b"body %d" % number for number in range(25))
    assert all(message_id.startswith(f"{query.id}-") for message_id, _ in first)

    send(pair, source, *numbered(4, first=25))
    assert ended(copied(spark, pair, tmp_path, of=source, to=copy)) == [4]
    both = arrived(pair, copy)
    assert set(first) < set(both)
    assert both.total() == 29

    # As if the driver died between the commit of the sink and Spark's own.
    forget_commit(tmp_path, 3)
    assert ended(copied(spark, pair, tmp_path, of=source, to=copy)) == [4]
    assert arrived(pair, copy) == both, "the manifest marks the batch as sent"

    # As if it died before the manifest was written.
    forget_commit(tmp_path, 3)
    manifest = tmp_path / "manifests" / query.id / "3.json"
    manifest.unlink()
    assert ended(copied(spark, pair, tmp_path, of=source, to=copy)) == [4]
    again = arrived(pair, copy)
    assert set(again) == set(both), "a replayed batch repeats its ids"
    assert again.total() == 33
    content = json.loads(manifest.read_text())
    assert (PublishManifest.from_json(content).primary, content["batch"]) == (4, 3)
    assert len(pair.peek(source)) == 29, "nothing was consumed"
    assert CANARY not in session.event_log()
    assert CANARY not in "".join(file.read_text(errors="replace") for file in tmp_path.rglob("*") if file.is_file())


@pytest.mark.slow
def test_receiving_stream_reads_a_failed_batch_again_and_empties_the_queue(
    spark: SparkSession, pair: Pair, tmp_path: Path
):
    source = pair.fresh_queue()
    send(pair, source, *numbered(25))
    attempts: list[tuple[int, list[str]]] = []

    def land(batch: DataFrame, number: int) -> None:
        attempts.append((number, sorted(row.messageId for row in batch.collect())))
        rejected = batch.where("messageId IN ('m-3', 'm-13')").withColumn("deadLetterReason", lit("Invalid"))
        writer = rejected.write.format("servicebus").option("credential", pair.reference)
        writer.option("action", "deadLetter").mode("append").save()
        if len(attempts) == 2:
            raise RuntimeError("the sink is down")

    def start() -> StreamingQuery:
        reader = spark.readStream.format("servicebus").option("credential", pair.reference).option("entity", source)
        rows = reader.option("mode", "receive").option("maxMessagesPerTrigger", 10).option("tasks", 2)
        columns = "entity string, sequenceNumber bigint, messageId string, body binary"
        writer = rows.schema(columns).load().writeStream.foreachBatch(land)
        return writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()

    with pytest.raises(StreamingQueryException, match="the sink is down"):
        start().awaitTermination(SECONDS)
    assert len(pair.peek(source)) == 14 + 2, "the first batch has landed, and the second is claimed"
    query = start()
    assert query.awaitTermination(SECONDS)
    assert [number for number, _ in attempts] == [0, 1, 1, 2]
    assert attempts[1] == (1, sorted([*attempts[2][1], "m-13"])), "the same messages, but for the rejected one"
    landed = [message_id for _, ids in attempts[2:] for message_id in ids]
    assert sorted([*attempts[0][1], *landed, "m-13"]) == sorted(f"m-{n}" for n in range(25))
    assert {found.key[1] for found in pair.peek(source)} == {"m-3", "m-13"}, "only the dead letters are left"
    progress = json.loads(str(query.recentProgress[-1].sources[0].latestOffset))
    assert progress["behind"] == {source: 0}


def test_stream_from_latest_reads_only_new_messages(spark: SparkSession, pair: Pair):
    source = pair.fresh_queue()
    send(pair, source, *numbered(5))
    reader = spark.readStream.format("servicebus").option("credential", pair.reference).option("entity", source)
    rows = reader.option("startingOffsets", "latest").load().select("messageId")
    query = rows.writeStream.format("memory").queryName("latest_only").start()
    try:
        query.processAllAvailable()
        send(pair, source, *numbered(3, first=5))
        query.processAllAvailable()
        sources = [each for progress in query.recentProgress for each in progress.sources]
    finally:
        query.stop()
    assert sum(each.numInputRows for each in sources) == 3
    assert json.loads(str(sources[-1].endOffset)) == json.loads(str(sources[-1].latestOffset)) == {source: 9}
    assert sorted(row.messageId for row in spark.table("latest_only").collect()) == ["m-5", "m-6", "m-7"]


def test_dead_letter_keeps_its_sequence_number(spark: SparkSession, pair: Pair):
    source = pair.fresh_queue()
    send(pair, source, *numbered(2))
    reader = spark.read.format("servicebus").option("credential", pair.reference).option("entity", source)
    numbers = {row.messageId: row.sequenceNumber for row in reader.load().collect()}
    dead = reader.option("subQueue", "deadLetter").load()
    with receiver_of(pair, source) as receiver:
        received = {each.message_id: each for each in receiver.receive_messages(max_message_count=2, max_wait_time=5)}
        receiver.dead_letter_message(received["m-1"])
        (last,) = dead.collect()
        receiver.dead_letter_message(received["m-0"])
    first, _ = dead.orderBy("sequenceNumber").collect()
    assert (last.messageId, last.sequenceNumber) == ("m-1", numbers["m-1"])
    assert (first.messageId, first.sequenceNumber) == ("m-0", numbers["m-0"]), "it comes later, with a lower number"
    following = spark.readStream.format("servicebus").option("credential", pair.reference).option("entity", source)
    query = following.option("subQueue", "deadLetter").load().writeStream.format("noop").start()
    with pytest.raises(StreamingQueryException, match="use a batch read, or accept data loss with failOnDataLoss"):
        query.awaitTermination(SECONDS)


def test_output_mode_complete_is_rejected(spark: SparkSession, pair: Pair, tmp_path: Path):
    source = pair.fresh_queue()
    send(pair, source, *numbered(1))
    reader = spark.readStream.format("servicebus").option("credential", pair.reference).option("entity", source)
    sink = reader.load().groupBy("body").count().select("body").writeStream.format("servicebus")
    sink = sink.option("credential", pair.reference).option("entity", "flights").outputMode("complete")
    query = sink.option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(StreamingQueryException, match="complete for a stream: allowed is append"):
        query.awaitTermination(SECONDS)


def test_planning_error_contains_no_secret(spark: SparkSession, pair: Pair, tmp_path: Path):
    query = copied(spark, pair, tmp_path, of="no-queue-to-follow", to="flights")
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(SECONDS)
    assert "EntityNotFoundError" in str(caught.value)
    assert CANARY not in str(caught.value)
