"""On Spark 4.0 and 4.1 the data source is imported, and what they lack is refused with what to do instead."""

from __future__ import annotations

import subprocess
import sys

import pyspark
import pytest

from servicebus_pair.spark.base.spark_version import MISSING, ReadLimit
from tests.compatibility.environments import SPARKS
from tests.system.demo.layout import PROJECT

# Removes the names that a version lacks, before anything is imported.
PROGRAM = """
import sys
from pyspark.sql import datasource
sys.modules["pyspark.sql.streaming.datasource"] = None
if sys.argv[1] == "4.0":
    vars(datasource).pop("DataSourceStreamArrowWriter", None)
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


@pytest.mark.skipif(ReadLimit is None, reason="an older Spark lacks them without being told to")
@pytest.mark.parametrize(
    ("version", "write"),
    [("4.0", "Spark 4.1 or later is required; write each batch with foreachBatch"), ("4.1", "works")],
)
def test_batches_work_and_streams_say_what_they_need(version: str, write: str):
    done = subprocess.run([sys.executable, "-c", PROGRAM, version], check=True, capture_output=True, text=True)
    read, written = done.stdout.splitlines()
    assert "Spark 4.2 or later is required; read batches" in read
    assert written.endswith(write)


def test_the_compatibility_page_has_the_table_of_what_is_missing():
    page = (PROJECT / "provider" / "docs" / "compatibility.md").read_text()
    rows = [f"| {name} | {since} | {before} |" for name, (since, before) in MISSING.items()]

    assert "\n".join(rows) in page
    assert {since for since, _ in MISSING.values()} <= set(SPARKS)
    assert pyspark.__version__ in SPARKS.values(), "make compatibility knows the version of these tests"
