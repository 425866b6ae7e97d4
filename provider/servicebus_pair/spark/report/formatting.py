"""Human-readable durations, sizes, times and counts. Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from typing import Final

_MINUTE: Final = 60
_UNITS: Final = ((86_400, "d"), (3600, "h"), (_MINUTE, "min"), (1, "s"))
_SIZES: Final = ((2**40, "TB"), (2**30, "GB"), (2**20, "MB"), (2**10, "KB"))


def format_duration(seconds: float | None) -> str:
    """Format a duration in its two largest units, such as ``2 h 5 min``; empty for ``None``."""
    if seconds is None:
        return ""
    if 0 < seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for (unit, name), (part, part_name) in pairwise(_UNITS):
        if whole >= unit:
            remainder = whole % unit // part
            return f"{whole // unit:,} {name}" + (f" {remainder} {part_name}" if remainder else "")
    return f"{whole} s"


def format_bytes(count: float | None) -> str:
    """Format a number of bytes in its largest unit, such as ``1.5 MB``; empty for ``None``."""
    if count is None:
        return ""
    for unit, name in _SIZES:
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count:,.0f} B"


def format_time(at: float | None) -> str:
    """Format a Unix time in UTC, to the second; empty for ``None``."""
    return "" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"


def pluralize(number: int, noun: str, *, plural: str | None = None) -> str:
    """Return a number with its noun, such as ``1 message`` or ``2,000 messages``."""
    many = f"{noun}s" if plural is None else plural
    return f"{number:,} {noun if number == 1 else many}"
