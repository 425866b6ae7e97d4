"""Spark discovers the data source by name (PLATFORM section 3), at low cost for other sessions."""

from __future__ import annotations

import subprocess
import sys

import pyspark_servicebus
from servicebus_pair.spark import ServiceBusDataSource

# Runs in every session that looks up a data source; prints the packages that this has loaded.
LOOKUP = """
import sys
from pyspark.sql.datasource import DataSource
before = set(sys.modules)
from pyspark_servicebus import DefaultSource
assert issubclass(DefaultSource, DataSource)
print(*sorted({name.partition(".")[0] for name in set(sys.modules) - before}))
"""


def test_pyspark_package_exports_the_default_source():
    assert pyspark_servicebus.DefaultSource is ServiceBusDataSource
    assert ServiceBusDataSource.name() == "servicebus"


def test_lookup_of_other_data_sources_does_not_import_the_sdk():
    done = subprocess.run([sys.executable, "-c", LOOKUP], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["pyspark_servicebus", "servicebus_pair"]
