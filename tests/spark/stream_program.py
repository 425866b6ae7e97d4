"""Copies two queues into one by a stream, and holds the rows of the second one back until a gate is open.

A gate that is a pipe is opened by whoever opens it for writing; one that is a file is open.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

parser = argparse.ArgumentParser()
for name in ("--pair", "--first", "--second", "--to", "--gate", "--ledger", "--home"):
    parser.add_argument(name, required=True)
given = parser.parse_args()
spark = SparkSession.builder.appName("stream").getOrCreate()


@F.udf("binary")
def held_back(entity: str, body: bytes) -> bytes:
    if entity == given.second:
        Path(given.gate).read_bytes()
    return body


source = spark.readStream.format("servicebus").option("credential", given.pair)
rows = source.option("entity", f"{given.first},{given.second}").load()
sink = rows.select(held_back("entity", "body").alias("body")).writeStream.format("servicebus")
sink = sink.option("credential", given.pair).option("entity", given.to).option("ledger", given.ledger)
sink = sink.option("manifest", f"{given.home}/manifests").option("checkpointLocation", f"{given.home}/checkpoint")
sink.trigger(availableNow=True).start().awaitTermination()
