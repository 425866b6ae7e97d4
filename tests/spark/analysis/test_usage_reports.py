"""Metered operations are merged with those of the ledger (SPEC section 8)."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from servicebus_pair.core import Operations
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.analysis.usage_reports import (
    LEDGER,
    METER,
    DailyOperations,
    UsageReport,
    merge_usage,
    read_usage_report,
)

FIRST, SECOND = date(2026, 1, 31), date(2026, 2, 1)


def test_greater_count_of_each_operation_is_used():
    ledger = [DailyOperations(day, "drain", LEDGER, Operations(sends=15, receives=10)) for day in (FIRST, SECOND)]
    reports = [
        UsageReport("drain", SECOND, Operations(sends=20, receives=20, empty_receives=12)),
        UsageReport("drain", FIRST, Operations(sends=5, receives=5, empty_receives=1)),
        UsageReport("other", FIRST, Operations()),
    ]
    excess = Operations(receives=5, empty_receives=13)
    assert merge_usage(ledger, reports) == [*ledger, DailyOperations(SECOND, "drain", METER, excess)]


@pytest.mark.parametrize(
    ("report", "error"),
    [
        ([], "has run None and began None: they must be a name and Unix seconds"),
        ({"run": "r", "began": True}, "has run 'r' and began True"),
        *(({"run": "r", "began": each}, "must be a name and Unix seconds") for each in (-1, 1e300, 253_402_300_799)),
        ({"run": "r" * 5000, "began": 0}, "must be a name and Unix seconds"),
        ({"run": "r", "began": 0, "operations": {"sends": 10**400}}, "operations has sends=1000.*allowed are"),
        ({"run": "r", "began": 0, "operations": [1]}, r"has operations \[1\]: they must be counts by name"),
        ({"run": "r", "began": 0, "operations": {"sends": -1}}, "operations has sends=-1: allowed are whole numbers"),
        ({"run": "r", "began": 0, "operations": {"sips": 1}}, "operations has sips=1: allowed are whole numbers"),
    ],
)
def test_invalid_report_is_named(report: Any, error: str, tmp_path: Path):
    file = tmp_path / "drain.json"
    file.write_text(json.dumps(report))
    with pytest.raises(ConfigurationError, match=error):
        read_usage_report(str(file))
