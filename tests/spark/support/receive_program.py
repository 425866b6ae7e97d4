"""Receives a queue into a table until it is stopped; Spark's file sink is idempotent by batch."""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession

parser = argparse.ArgumentParser()
for name in ("--pair", "--entity", "--home"):
    parser.add_argument(name, required=True)
given = parser.parse_args()
spark = SparkSession.builder.appName("receive").getOrCreate()
source = spark.readStream.format("servicebus").option("credential", given.pair).option("entity", given.entity)
source = source.option("mode", "receive").option("maxMessagesPerTrigger", 200).option("tasks", 2)
sink = source.load().select("messageId", "body").writeStream.format("parquet")
sink = sink.option("checkpointLocation", f"{given.home}/checkpoint").option("path", f"{given.home}/table")
sink.trigger(availableNow=True).start().awaitTermination()
