"""Where a ledger file lies below its folder: ``day=2026-11-22/run=monday``, so that a run's records are found by name.

Readers take all files below the folder, wherever they lie. Names contain nothing that a shell, a URL or Hadoop would
take for something else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import Final

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_MAX_CHARACTERS: Final = 80
_DIGEST_BYTES: Final = 6
_DAY: Final = timedelta(days=1)


def partition_path(run: str, *, at: float) -> str:
    """Return the path of a run's files below the folder of the ledger, at a time in seconds since the Unix epoch."""
    return f"{_day_folder(datetime.fromtimestamp(at, UTC))}/{run_partition(run)}"


def run_partition(run: str) -> str:
    """Return the name of the folder of a run's files; runs have different ones."""
    name = _UNSAFE.sub("_", run)[:_MAX_CHARACTERS]
    if name == run:
        return f"run={run}"
    return f"run={name}.{blake2b(run.encode(errors='surrogatepass'), digest_size=_DIGEST_BYTES).hexdigest()}"


def days_since(since: float, *, now: float) -> Iterator[str]:
    """Yield the folders of all days from ``since`` to ``now``, and one more at either end for clocks that differ."""
    day, last = (datetime.fromtimestamp(each, UTC) for each in (since, now))
    day -= _DAY
    while day.date() <= (last + _DAY).date():
        yield _day_folder(day)
        day += _DAY


def _day_folder(day: datetime) -> str:
    return f"day={day:%Y-%m-%d}"
