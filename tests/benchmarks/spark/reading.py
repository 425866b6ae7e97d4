"""Reading a queue on ``local[2]``: by peek, with one task and with two, and by a stream that receives."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from time import perf_counter
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.spark import publish
from tests.benchmarks.measure import Measure
from tests.benchmarks.spark.namespaces import QUEUE, Namespaces, namespaces
from tests.benchmarks.spark.session import session
from tests.benchmarks.spark.table import table

_CORES: Final = 2
_UNIT: Final = "messages/s"
# One task read 100,000 messages in 35 s before reads were divided.
_GOAL: Final = 3 * 100_000 / 35
_LOG_SECONDS: Final = 10


def measures(count: int) -> Iterator[Measure]:
    """Fill a queue with ``count`` messages, peek at all of them, and receive them."""
    with namespaces() as pair, session(cores=_CORES) as spark:
        _log(f"publishing {count} messages")
        ledger = str(pair.home / "ledger")
        publish(table(spark, count), pair_reference=pair.reference, ledger=ledger, run="bench", entity=QUEUE)
        for name, tasks, schema, goal in (
            ("all columns, one task", 1, None, None),
            ("all columns, two tasks", _CORES, None, _GOAL),
            ("id and body, two tasks", _CORES, "messageId string, body binary", None),
        ):
            _log(f"peeking: {name}")
            yield Measure(
                name=f"peek of {count}, {name}",
                value=_peek(spark, pair, count, tasks, schema),
                unit=_UNIT,
                at_least=goal,
            )
        yield Measure(name=f"receive of {count}, two tasks", value=_receive(spark, pair, count), unit=_UNIT)


def _peek(spark: SparkSession, pair: Namespaces, count: int, tasks: int, schema: str | None) -> float:
    reader = spark.read.format("servicebus").option("credential", pair.reference).option("entity", QUEUE)
    rows = (reader if schema is None else reader.schema(schema)).option("tasks", tasks).load()
    started = perf_counter()
    found = rows.agg(F.count("*"), F.count_distinct("messageId"), F.sum(F.length("body"))).collect()[0]
    seconds = perf_counter() - started
    if found[0] != count or found[1] != count:
        raise RuntimeError(f"{found[0]} messages with {found[1]} ids were peeked: expected {count}")
    return count / seconds


def _receive(spark: SparkSession, pair: Namespaces, count: int) -> float:
    source = spark.readStream.format("servicebus").option("credential", pair.reference).option("entity", QUEUE)
    rows: DataFrame = source.option("mode", "receive").option("tasks", _CORES).load().select("messageId", "body")
    sink = rows.writeStream.format("parquet").option("path", str(pair.home / "received"))
    started = perf_counter()
    query = sink.option("checkpointLocation", str(pair.home / "checkpoint")).trigger(availableNow=True).start()
    while not query.awaitTermination(_LOG_SECONDS):
        progress = query.lastProgress
        if progress is not None:
            _log(f"receiving: batch {progress.batchId} after {perf_counter() - started:.0f} s")
    seconds = perf_counter() - started
    landed = spark.read.parquet(str(pair.home / "received")).agg(F.count_distinct("messageId")).collect()[0][0]
    if landed != count:
        raise RuntimeError(f"{landed} messages were received: expected {count}")
    return count / seconds


def _log(text: str) -> None:
    print(f"    {text}", file=sys.stderr, flush=True)  # noqa: T201 - progress of a run of minutes
