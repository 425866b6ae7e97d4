"""Streams two queues into one, and delays the rows of the second until a gate can be read.

A named pipe blocks until it is opened for writing; a regular file does not block.
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
def delayed(entity: str, body: bytes) -> bytes:
    if entity == given.second:
        Path(given.gate).read_bytes()
    return body


source = spark.readStream.format("servicebus").option("credential", given.pair)
rows = source.option("entity", f"{given.first},{given.second}").load()
sink = rows.select(delayed("entity", "body").alias("body")).writeStream.format("servicebus")
sink = sink.option("credential", given.pair).option("entity", given.to).option("ledger", given.ledger)
sink = sink.option("manifest", f"{given.home}/manifests").option("checkpointLocation", f"{given.home}/checkpoint")
sink.trigger(availableNow=True).start().awaitTermination()
