"""What README and the page of the data source show, as a program."""

from __future__ import annotations

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
flights = spark.createDataFrame([("AA1 was late", "N1"), ("UA2 was not", "N2")], "body string, sessionId string")

# [START spark]
flights.write.format("servicebus").option("credential", "env:PAIR").option("entity", "flights").mode("append").save()

queues = spark.read.format("servicebus").option("credential", "env:PAIR").option("entity", "flights")
queues.option("subQueue", "main,deadLetter").load().groupBy("subQueue", "state").count().show()
# [END spark]
