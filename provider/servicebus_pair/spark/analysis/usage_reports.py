"""Merges metered operations from job reports with the operations derived from a ledger. Pure.

Both are lower bounds of what was billed: the ledger records every message but no empty receives, the meter counts
every operation but is lost if its process is killed. So the greater count is used for each run and operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from datetime import UTC, date, datetime
from typing import Any, Final

from servicebus_pair.core import Operations
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.ledger import MAX_AT, MAX_BYTES, MAX_TEXT_BYTES
from servicebus_pair.spark.base.report_files import read_json

LEDGER: Final = "ledger"
METER: Final = "meter"
_NAMES: Final = tuple(each.name for each in fields(Operations))


@dataclass(frozen=True, slots=True)
class UsageReport:
    """Operations metered by one run.

    :param day: UTC day on which the run began.
    """

    run: str
    day: date
    operations: Operations


@dataclass(frozen=True, slots=True)
class DailyOperations:
    """Operations of one run on one day.

    :param source: :data:`LEDGER` or :data:`METER`.
    """

    day: date
    run: str
    source: str
    operations: Operations


def read_usage_report(path: str) -> UsageReport:
    """Read the report of a drain, or any JSON object with ``run``, ``operations`` and ``began`` (Unix seconds).

    :raises ConfigurationError: naming the file, the field, its value and what is allowed.
    """
    value = read_json(path, what="report")
    report = value if isinstance(value, Mapping) else {}
    run, began = report.get("run"), report.get("began")
    is_name = isinstance(run, str) and len(run.encode(errors="replace")) <= MAX_TEXT_BYTES
    if not is_name or isinstance(began, bool) or not isinstance(began, int | float) or not 0 <= began <= MAX_AT:
        raise ConfigurationError(
            f"report {path!r} has run {run!r:.99} and began {began!r:.99}: they must be a name and Unix seconds, as in "
            "a drain report"
        )
    return UsageReport(str(run), datetime.fromtimestamp(began, UTC).date(), _operations(path, report.get("operations")))


def merge_usage(ledger: Iterable[DailyOperations], reports: Iterable[UsageReport]) -> list[DailyOperations]:
    """Return the ledger's counts, plus what the meters of each run counted in excess, on the run's last start day."""
    counts = list(ledger)
    recorded: dict[str, Operations] = {}
    for count in counts:
        recorded[count.run] = recorded.get(count.run, Operations()) + count.operations
    metered: dict[str, Operations] = {}
    days: dict[str, date] = {}
    for report in reports:
        metered[report.run] = metered.get(report.run, Operations()) + report.operations
        days[report.run] = max(report.day, days.get(report.run, report.day))
    excess = {run: _subtract(total, recorded.get(run, Operations())) for run, total in metered.items()}
    return counts + [DailyOperations(days[run], run, METER, more) for run, more in excess.items() if more.total]


def _subtract(metered: Operations, recorded: Operations) -> Operations:
    return Operations(**{name: max(0, getattr(metered, name) - getattr(recorded, name)) for name in _NAMES})


def _operations(path: str, value: Any) -> Operations:
    if not isinstance(value, Mapping):
        raise ConfigurationError(f"report {path!r} has operations {value!r:.99}: they must be counts by name")
    for name, count in value.items():
        if name not in _NAMES or isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MAX_BYTES:
            raise ConfigurationError(
                f"report {path!r}: operations has {name:.99}={count!r:.99}: allowed are whole numbers from 0 of "
                f"{', '.join(asdict(Operations()))}"
            )
    return Operations(**value)
