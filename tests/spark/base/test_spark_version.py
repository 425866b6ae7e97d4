"""On Spark 4.0 and 4.1 the data source is imported, and what they lack is refused with what to do instead."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Removes the names that a version lacks, before anything is imported.
PROGRAM = """
import sys
from pyspark.sql import datasource
sys.modules["pyspark.sql.streaming.datasource"] = None
if sys.argv[1] == "4.0":
    del datasource.DataSourceStreamArrowWriter
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.datasource.options import ReadOptions, WriteOptions
from servicebus_pair.spark.datasource.reader import ServiceBusReader, ServiceBusStreamReader
from servicebus_pair.spark.datasource.writer import ServiceBusStreamWriter, ServiceBusWriter
given = {"credential": "env:PAIR", "entity": "flights"}
ServiceBusReader(ReadOptions.parse(given, streaming=False))
ServiceBusWriter(WriteOptions.parse(given))
for stream in (
    lambda: ServiceBusStreamReader(ReadOptions.parse(given, streaming=True)),
    lambda: ServiceBusStreamWriter(WriteOptions.parse(given)),
):
    try:
        stream()
        print("works")
    except ConfigurationError as error:
        print(error)
"""


@pytest.mark.parametrize(
    ("version", "write"),
    [("4.0", "Spark 4.1 or later is required; write each batch with foreachBatch"), ("4.1", "works")],
)
def test_batches_work_and_streams_say_what_they_need(version: str, write: str):
    done = subprocess.run([sys.executable, "-c", PROGRAM, version], check=True, capture_output=True, text=True)
    read, written = done.stdout.splitlines()
    assert "Spark 4.2 or later is required; read batches" in read
    assert written.endswith(write)
