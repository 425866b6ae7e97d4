"""The delay statistics of the example program, over real flights."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from pyspark.sql import SparkSession

from tests.system.demo.delays import expected_statistics, figures
from tests.system.demo.flights import read_flights
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


def test_the_messages_hold_what_fractions_come_to(spark: SparkSession, program: ModuleType):
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


def test_a_day_without_departures_has_no_delay():
    cancelled = {"dep_time": None, "dep_delay": None}
    assert figures("UA", "2013-02-09", [cancelled, cancelled]) == {
        "carrier": "UA",
        "date": "2013-02-09",
        "flights": 2,
        "cancelled": 2,
        "delayed": 0,
        "mean_delay": None,
        "p50_delay": None,
        "p95_delay": None,
    }


def test_percentiles_lie_between_two_flights_and_half_a_digit_is_rounded_away_from_zero():
    late = [{"dep_time": 1, "dep_delay": delay} for delay in (-1, 0, 16, 0, 0, 0, 0, -16)]
    found = figures("UA", "2013-02-09", late)
    assert (found["delayed"], found["mean_delay"], found["p50_delay"], found["p95_delay"]) == (1, -0.13, 0.0, 10.4)


@pytest.mark.parametrize("month", ["0", "13", "", "year", "1,2"])
def test_what_is_no_month_is_refused_before_anything_begins(month: str, tmp_path: Path):
    given = ["--pair", "env:PAIR", "--ledger", str(tmp_path / "ledger"), "--run", "r", "--output", str(tmp_path / "o")]
    ended = subprocess.run(
        [sys.executable, str(PROGRAM), "--month", month, *given], capture_output=True, text=True, check=False
    )

    assert ended.returncode == 2
    assert f"{month!r} is no month: allowed are 1 to 12, and all for the whole year" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_whole_year_is_all_of_the_package(program: ModuleType):
    flights = program.read_flights(program.flights_file(), month=None)

    assert flights.num_rows == 336_776
    assert flights["n"][-1].as_py() == 336_775
