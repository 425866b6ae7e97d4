"""Spark finds the data source by its name (PLATFORM section 3), and every session pays little for it."""

from __future__ import annotations

import subprocess
import sys

import pyspark_servicebus
from servicebus_pair.spark import ServiceBusDataSource

# What Spark does in every session that looks for a data source, with what that has loaded.
LOOK = """
import sys
from pyspark.sql.datasource import DataSource
before = set(sys.modules)
from pyspark_servicebus import DefaultSource
assert issubclass(DefaultSource, DataSource)
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
"""


def test_the_module_that_spark_imports_holds_the_source_under_its_name():
    assert pyspark_servicebus.DefaultSource is ServiceBusDataSource
    assert ServiceBusDataSource.name() == "servicebus"


def test_sessions_that_look_for_another_data_source_load_no_sdk():
    done = subprocess.run([sys.executable, "-c", LOOK], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["pyspark_servicebus", "servicebus_pair"]
