"""Durations, sizes and counts are human-readable."""

from __future__ import annotations

from servicebus_pair.spark.report.formatting import format_bytes, format_duration, pluralize


def test_quantities_are_human_readable():
    assert [format_duration(each) for each in (None, 0.04, 9.26, 60, 3725, 90_000, 1e9)] == [
        *("", "40 ms", "9.3 s", "1 min", "1 h 2 min", "1 d 1 h", "11,574 d 1 h"),
    ]
    assert [format_bytes(each) for each in (None, 12, 1536, 5 * 2**40)] == ["", "12 B", "1.5 KB", "5.0 TB"]
    assert (pluralize(1, "ping"), pluralize(2000, "ping")) == ("1 ping", "2,000 pings")
