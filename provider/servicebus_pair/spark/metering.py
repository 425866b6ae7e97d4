"""What was metered, as the reports of jobs and tasks tell it, beside what a ledger tells. Pure.

Both are lower bounds of what was billed: a ledger knows every message and no empty receive, a meter knows every
operation of the processes that came to their end. So of each run and operation, the greater count stands.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

from servicebus_pair.core.costs import Operations
from servicebus_pair.core.errors import ConfigurationError

__all__ = ["LEDGER", "METER", "DayCount", "Metered", "read_metered", "with_meters"]

LEDGER: Final = "ledger"
METER: Final = "meter"
_NAMES: Final = tuple(each.name for each in fields(Operations))


@dataclass(frozen=True, slots=True)
class Metered:
    """What the meters of one run have counted.

    :param day: on which it began, in UTC.
    """

    run: str
    day: date
    operations: Operations


@dataclass(frozen=True, slots=True)
class DayCount:
    """Operations of one run on one day.

    :param source: who told of them, :data:`LEDGER` or :data:`METER`.
    """

    day: date
    run: str
    source: str
    operations: Operations


def read_metered(path: str) -> Metered:
    """Read the report of a drain, or any JSON object with ``run``, ``operations`` and ``began`` (Unix seconds).

    :raises ConfigurationError: naming the file, the field, its value and what is allowed.
    """
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"report {path!r} cannot be read as JSON: {error}") from None
    given = value if isinstance(value, Mapping) else {}
    run, began = given.get("run"), given.get("began")
    if not isinstance(run, str) or isinstance(began, bool) or not isinstance(began, int | float):
        raise ConfigurationError(
            f"report {path!r} has run {run!r} and began {began!r}: they must be a name and Unix seconds, as of a drain"
        )
    return Metered(run, datetime.fromtimestamp(began, UTC).date(), _operations(path, given.get("operations")))


def with_meters(ledger: Iterable[DayCount], metered: Iterable[Metered]) -> list[DayCount]:
    """Answer the counts of the ledger, and for each run what its meters know beyond them, on the day it began last."""
    counts = list(ledger)
    known: dict[str, Operations] = {}
    for count in counts:
        known[count.run] = known.get(count.run, Operations()) + count.operations
    of_run: dict[str, Operations] = {}
    days: dict[str, date] = {}
    for each in metered:
        of_run[each.run] = of_run.get(each.run, Operations()) + each.operations
        days[each.run] = max(each.day, days.get(each.run, each.day))
    beyond = {run: _beyond(total, known.get(run, Operations())) for run, total in of_run.items()}
    return counts + [DayCount(days[run], run, METER, more) for run, more in beyond.items() if more.total]


def _beyond(metered: Operations, known: Operations) -> Operations:
    return Operations(**{name: max(0, getattr(metered, name) - getattr(known, name)) for name in _NAMES})


def _operations(path: str, value: Any) -> Operations:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"report {path!r} has operations {value!r}: they must be counts by name")
    for name, count in value.items():
        if name not in _NAMES or isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ConfigurationError(
                f"report {path!r}: operations has {name}={count!r}: allowed are whole numbers from 0 of "
                f"{', '.join(asdict(Operations()))}"
            )
    return Operations(**value)
