"""The examples of README and docs/spark.md, as a program."""

from __future__ import annotations

import tempfile

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

home = tempfile.mkdtemp()
spark = SparkSession.builder.getOrCreate()
flights = spark.createDataFrame([("AA1 was late", "N1"), ("UA2 was not", "N2")], "body string, sessionId string")

# [START spark]
flights.write.format("servicebus").option("credential", "env:PAIR").option("entity", "flights").mode("append").save()

queues = spark.read.format("servicebus").option("credential", "env:PAIR").option("entity", "flights")
queues.option("subQueue", "main,deadLetter").load().groupBy("subQueue", "state").count().show()
# [END spark]

# [START collect]
sink = flights.write.format("servicebus").option("credential", "env:PAIR").option("entity", "flights")
sink.option("onError", "collect").option("errorTable", f"{home}/rejected").mode("append").save()
# [END collect]

# [START streaming]
late = spark.readStream.format("servicebus").option("credential", "env:PAIR").option("entity", "flights").load()
copy = late.where("state = 'active'").selectExpr("body", "messageId", "applicationProperties").writeStream
copy = copy.format("servicebus").option("credential", "env:PAIR").option("entity", "briefings")
copy = copy.option("checkpointLocation", f"{home}/checkpoint").option("manifest", f"{home}/manifests")
copy.trigger(availableNow=True).start().awaitTermination()
# [END streaming]

# [START receiving]
queue = spark.readStream.format("servicebus").option("credential", "env:PAIR").option("entity", "statistics")
taken = queue.option("mode", "receive").option("tasks", 2).load().select("messageId", "body").writeStream
taken = taken.format("parquet").option("checkpointLocation", f"{home}/received").option("path", f"{home}/statistics")
taken.trigger(availableNow=True).start().awaitTermination()
# [END receiving]

# [START rejecting]
messages = spark.readStream.format("servicebus").option("credential", "env:PAIR").option("entity", "statistics")


def land(batch: DataFrame, number: int) -> None:
    valid = batch.where("get_json_object(cast(body AS STRING), '$.flight') IS NOT NULL")
    valid.write.mode("overwrite").parquet(f"{home}/landed/batch={number}")
    rejected = batch.where("get_json_object(cast(body AS STRING), '$.flight') IS NULL")
    rejected = rejected.withColumn("deadLetterReason", lit("Invalid"))
    sink = rejected.write.format("servicebus").option("credential", "env:PAIR")
    sink.option("action", "deadLetter").mode("append").save()


handled = messages.option("mode", "receive").load().writeStream.foreachBatch(land)
handled.option("checkpointLocation", f"{home}/handled").trigger(availableNow=True).start().awaitTermination()
# [END rejecting]
