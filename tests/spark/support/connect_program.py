"""Writes, reads and receives through Spark Connect; prints what it found as JSON."""

from __future__ import annotations

import argparse
import json

from pyspark.sql import SparkSession

parser = argparse.ArgumentParser()
for name in ("--pair", "--entity", "--copy", "--home"):
    parser.add_argument(name, required=True)
given = parser.parse_args()
spark = SparkSession.builder.remote("local[2]").getOrCreate()
OPTIONS = {"credential": given.pair, "entity": given.entity}

rows = spark.createDataFrame([("one", "m-1"), ("two", "m-2")], "body string, messageId string")
rows.write.format("servicebus").options(**OPTIONS).mode("append").save()
read = spark.read.format("servicebus").options(**OPTIONS).load().select("messageId").collect()
source = spark.readStream.format("servicebus").options(**OPTIONS).option("mode", "receive").load()
sink = source.selectExpr("concat(messageId, '-again') messageId", "body").writeStream.format("servicebus")
sink = sink.options(**OPTIONS | {"entity": given.copy}).option("checkpointLocation", given.home)
query = sink.trigger(availableNow=True).start()
ended = query.awaitTermination(120)
found = {"session": type(spark).__module__, "read": sorted(row.messageId for row in read), "ended": ended}
print(json.dumps(found))  # noqa: T201 - the result
spark.stop()
