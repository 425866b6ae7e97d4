"""ISO 8601 durations as Service Bus writes them, to the millisecond."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

_PATTERN: Final = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.ASCII,
)


def format_duration(value: timedelta) -> str:
    """Format a non-negative duration, such as ``P1DT2H3M4.5S``; zero is ``PT0S``.

    :raises ValueError: the duration is negative.
    """
    if value < timedelta(0):
        raise ValueError(f"{value} is negative: allowed are durations from 0")
    minutes, seconds = divmod(value.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    clock = f"{hours}H" * bool(hours) + f"{minutes}M" * bool(minutes)
    if seconds or value.microseconds:
        fraction = f".{value.microseconds:06}".rstrip("0") if value.microseconds else ""
        clock += f"{seconds}{fraction}S"
    days = f"{value.days}D" * bool(value.days)
    if not days and not clock:
        return "PT0S"
    return f"P{days}" + (f"T{clock}" if clock else "")


def parse_duration(text: str) -> timedelta:
    """Parse an ISO 8601 duration of days, hours, minutes and seconds.

    :raises ValueError: ``text`` is not such a duration, or exceeds ``timedelta.max``.
    """
    match = _PATTERN.fullmatch(text)
    if match is None or text.endswith(("P", "T")):
        raise ValueError(f"{text!r} is not an ISO 8601 duration of days, hours, minutes and seconds")
    parts = {name: float(value) for name, value in match.groupdict("0").items()}
    try:
        return timedelta(**parts)
    except OverflowError as error:
        raise ValueError(f"{text!r} is longer than {timedelta.max}") from error
