"""The delay statistics of the example program publish_flights, over real flights."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

from tests.system.demo.expected_messages import read_flights
from tests.system.demo.expected_statistics import expected_statistics
from tests.system.demo.layout import PROJECT

PROGRAM = PROJECT / "dags" / "jobs" / "publish_flights.py"
FEBRUARY = 2


@pytest.fixture(scope="module")
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("publish_flights", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_statistics_messages_match_exact_fractions(spark: SparkSession, program: ModuleType):
    flights = spark.createDataFrame(program.read_flights(program.flights_file(), month=FEBRUARY))

    rows = program.statistics_messages(program.statistics(flights)).collect()

    expected = expected_statistics(read_flights(month=FEBRUARY))
    assert len(rows) == len(expected) > 400
    assert {(row.entity, row.messageId): (row.body.encode(), row.sessionId) for row in rows} == {
        key: (content.body, content.session_id) for key, content in expected.items()
    }
    assert {row.applicationProperties for row in rows} == {
        json.dumps(content.properties, separators=(",", ":")) for content in expected.values()
    }


@pytest.mark.parametrize("month", ["0", "13", "", "year", "1,2"])
def test_invalid_month_is_rejected_by_the_parser(month: str, tmp_path: Path):
    given = ["--pair", "env:PAIR", "--ledger", str(tmp_path / "ledger"), "--run", "r", "--output", str(tmp_path / "o")]
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), "--month", month, *given], capture_output=True, text=True, check=False
    )

    assert ended.returncode == 2
    assert f"{month!r} is not a month: allowed are 1 to 12, and all for the whole year" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_month_all_reads_the_whole_package(program: ModuleType):
    flights = program.read_flights(program.flights_file(), month=None)

    assert flights.num_rows == 336_776
    assert flights["n"][-1].as_py() == 336_775
