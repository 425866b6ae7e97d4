"""Computes the delay statistics that the pipeline must have sent.

The rules are those of ``dags/jobs/publish_flights.py``, with exact fractions instead of Spark's functions.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction

from tests.system.demo.comparison import Content, Key

DELAYED_MINUTES = 15
QUEUE = "statistics"
CENT = Decimal("0.01")
Flight = Mapping[str, str | int | None]
MEDIAN, HIGH = Fraction(1, 2), Fraction(95, 100)


def delay_of(flight: Flight) -> int | None:
    """Return the departure delay in minutes, or ``None`` for a cancelled flight."""
    delay = flight["dep_delay"]
    return delay if isinstance(delay, int) else None


def is_delayed(flight: Flight) -> bool:
    delay = delay_of(flight)
    return delay is not None and delay > DELAYED_MINUTES


def carrier_days(flights: Iterable[Flight]) -> dict[tuple[str, str], list[Flight]]:
    days: dict[tuple[str, str], list[Flight]] = defaultdict(list)
    for flight in flights:
        days[str(flight["carrier"]), f"{flight['year']:04d}-{flight['month']:02d}-{flight['day']:02d}"].append(flight)
    return days


def expected_statistics(flights: Iterable[Flight]) -> dict[Key, Content]:
    return {
        (QUEUE, f"statistics-{day}-{carrier}"): Content(
            body=json.dumps(figures(carrier, day, group), separators=(",", ":")).encode(),
            content_type="application/json",
            subject=carrier,
            session_id=carrier,
            properties={"flights": len(group)},
        )
        for (carrier, day), group in carrier_days(flights).items()
    }


def figures(carrier: str, day: str, flights: Sequence[Flight]) -> dict[str, str | int | float | None]:
    delays = sorted(delay for flight in flights if (delay := delay_of(flight)) is not None)
    return {
        "carrier": carrier,
        "date": day,
        "flights": len(flights),
        "cancelled": sum(flight["dep_time"] is None for flight in flights),
        "delayed": sum(map(is_delayed, flights)),
        "mean_delay": rounded(Fraction(sum(delays), len(delays))) if delays else None,
        "p50_delay": rounded(percentile(delays, MEDIAN)) if delays else None,
        "p95_delay": rounded(percentile(delays, HIGH)) if delays else None,
    }


def percentile(ordered: Sequence[int], fraction: Fraction) -> Fraction:
    """Return a percentile, linearly interpolated between neighbouring values."""
    position = (len(ordered) - 1) * fraction
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def rounded(value: Fraction) -> float:
    """Round half away from zero to two decimal places."""
    cents = (Decimal(value.numerator) / Decimal(value.denominator)).quantize(CENT, rounding=ROUND_HALF_UP)
    return float(cents) + 0.0  # turns -0.0 into 0.0
