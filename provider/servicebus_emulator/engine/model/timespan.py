"""A .NET ``TimeSpan``: a duration in ticks of 100 ns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Final

_DURATION: Final = re.compile(
    r"(?P<sign>-)?P(?=[0-9T])(?:(?P<years>\d+)Y)?(?:(?P<months>\d+)M)?(?:(?P<days>\d+)D)?"
    r"(?:T(?=\d)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+)(?:\.(?P<fraction>\d+))?S)?)?",
    re.ASCII,
)
_TICK_DIGITS: Final = 7
_MAX_DURATION_TEXT: Final = 64


@dataclass(frozen=True, slots=True, order=True)
class TimeSpan:
    """A .NET ``TimeSpan``: a whole number of ticks of 100 ns in 64 bits.

    ``timedelta`` has a resolution of microseconds and cannot represent ``TimeSpan.MaxValue``, which the administration
    API uses for "unlimited".

    :param ticks: the duration in ticks of 100 ns, -2**63 .. 2**63 - 1.
    :raises ValueError: when `ticks` does not fit into 64 bits.
    """

    ticks: int

    MAX: ClassVar[TimeSpan]

    def __post_init__(self) -> None:
        if not -(2**63) <= self.ticks < 2**63:
            raise ValueError(
                f"duration of {self.ticks} ticks is out of range;"
                " allowed: -P10675199DT2H48M5.4775808S .. P10675199DT2H48M5.4775807S"
            )

    @classmethod
    def of(cls, value: timedelta) -> TimeSpan:
        """Convert a ``timedelta``, without loss."""
        return cls(value // timedelta(microseconds=1) * 10)

    @classmethod
    def parse(cls, text: str) -> TimeSpan:
        """Parse an ISO 8601 duration as .NET's ``XmlConvert.ToTimeSpan`` does.

        A year is 365 days and a month 30; digits beyond the seventh decimal are rounded to the nearest tick.

        :param text: for example ``PT1M`` or ``P10675199DT2H48M5.4775807S``.
        :raises ValueError: when `text` is not a duration or does not fit into 64 bits of ticks.
        """
        stripped = text.strip()
        match = _DURATION.fullmatch(stripped) if len(stripped) <= _MAX_DURATION_TEXT else None
        if match is None:
            raise ValueError(
                f"{text[:_MAX_DURATION_TEXT]!r} is not a duration; allowed: ISO 8601 such as PT1M or P1DT2H30M"
            )
        parts = {name: int(match[name] or 0) for name in ("years", "months", "days", "hours", "minutes", "seconds")}
        days = parts["years"] * 365 + parts["months"] * 30 + parts["days"]
        seconds = ((days * 24 + parts["hours"]) * 60 + parts["minutes"]) * 60 + parts["seconds"]
        ticks = seconds * 10**_TICK_DIGITS + _fraction_in_ticks(match["fraction"])
        return cls(-ticks if match["sign"] is not None else ticks)

    @property
    def seconds(self) -> float:
        """The duration in seconds, rounded to a float."""
        return self.ticks / 10**_TICK_DIGITS

    @property
    def unbounded(self) -> bool:
        """Whether the duration means "unlimited": longer than the range of .NET's ``DateTime`` (to year 9999)."""
        return self.ticks > _DATETIME_RANGE.ticks

    def __str__(self) -> str:
        """Format as .NET's ``XmlConvert.ToString`` does: ``P1DT2H``, ``PT0S``, ``-PT0.5S``."""
        whole, ticks = divmod(abs(self.ticks), 10**_TICK_DIGITS)
        minutes, seconds = divmod(whole, 60)
        hours, minutes = divmod(minutes, 60)
        days, hours = divmod(hours, 24)
        date = f"{days}D" if days > 0 else ""
        time = (f"{hours}H" if hours > 0 else "") + (f"{minutes}M" if minutes > 0 else "")
        if seconds > 0 or ticks > 0:
            fraction = f".{ticks:07d}".rstrip("0") if ticks > 0 else ""
            time += f"{seconds}{fraction}S"
        if date == "" and time == "":
            time = "0S"
        return f"{'-' if self.ticks < 0 else ''}P{date}{'T' if time != '' else ''}{time}"


def _fraction_in_ticks(digits: str | None) -> int:
    if digits is None:
        return 0
    ticks = int(digits[:_TICK_DIGITS].ljust(_TICK_DIGITS, "0"))
    return ticks + (1 if digits[_TICK_DIGITS : _TICK_DIGITS + 1] >= "5" else 0)


TimeSpan.MAX = TimeSpan(2**63 - 1)
_DATETIME_RANGE: Final = TimeSpan.of(datetime.max.replace(tzinfo=UTC) - datetime.min.replace(tzinfo=UTC))
