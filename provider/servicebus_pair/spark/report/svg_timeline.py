"""Stacked area charts of counts over time, as HTML and SVG that fit any width. Pure.

The SVG is stretched to the available width; the labels are HTML text outside of it, so their size is fixed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from math import floor, log10
from operator import attrgetter
from typing import Final

from servicebus_pair.spark.report.formatting import format_duration
from servicebus_pair.spark.report.html import COLORS, escape

_WIDTH: Final = 1000
_HEIGHT: Final = 240
_GRID_STYLE: Final = 'stroke="var(--rule)"'
_REFERENCE_STYLE: Final = 'stroke="var(--bad)" stroke-width="2" stroke-dasharray="6 4"'
_HEADROOM: Final = 1.08
_Y_TICKS: Final = 4
_X_TICKS: Final = 7
_MAX_TOOLTIP_LINES: Final = 10
_EDGE_FRACTION: Final = 0.07
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_UNITS: Final = {"second": 1, "minute": _MINUTE, "hour": _HOUR, "day": _DAY}
_TICK_INTERVALS: Final = (
    *(1, 2, 5, 10, 15, 30),
    *(_MINUTE * number for number in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * number for number in (1, 2, 3, 6, 12)),
    *(_DAY * number for number in (1, 2, 3, 7, 14, 28, 91, 182, 364)),
)


@dataclass(frozen=True, slots=True)
class Highlight:
    """A highlighted period, in seconds since the Unix epoch.

    :param tooltip: shown on hover.
    """

    began: float
    ended: float
    tooltip: str


def timeline(
    series: Mapping[str, Mapping[int, float]],
    *,
    start: float,
    step: float,
    unit: str = "messages",
    highlights: Sequence[Highlight] = (),
    highlight_label: str = "",
    reference_line: tuple[str, float] | None = None,
) -> str:
    """Return a stacked area chart.

    :param series: counts by name, then by index of the step; at least one series, none empty.
    :param start: start of step 0, seconds since the Unix epoch.
    :param step: length of a step, seconds.
    :param unit: what is counted.
    :param highlight_label: meaning of the highlights, for the legend.
    :param reference_line: label and count per step of a horizontal line.
    """
    steps = 1 + max(max(slots) for slots in series.values())
    time_unit = max((name for name, length in _UNITS.items() if length <= max(1, step)), key=_UNITS.__getitem__)
    scale = _UNITS[time_unit] / step
    stacked = list(_stacked(series, steps))
    highest = max([*stacked[-1], 0 if reference_line is None else reference_line[1]]) * scale
    ticks = _ticks(highest)
    top = max(highest * _HEADROOM, ticks[-1])
    picture = [
        *(_horizontal_line(value, top, _GRID_STYLE) for value in ticks[1:]),
        *(_highlight(each, start, steps * step) for each in _merge_highlights(highlights, start, steps * step, step)),
        *(
            _area(
                [count * scale for count in upper],
                [count * scale for count in lower],
                top,
                COLORS[number % len(COLORS)],
            )
            for number, (lower, upper) in enumerate(pairwise(stacked))
        ),
        *([] if reference_line is None else [_horizontal_line(reference_line[1] * scale, top, _REFERENCE_STYLE)]),
    ]
    title = f"{escape(unit)} per {time_unit}"
    days = _axis_title(start, start + steps * step)
    return (
        f"{_legend(series, highlight_label if highlights else '', reference_line)}"
        f'<div class="plot"><div class="of">{title}</div><div class="y">{_y_labels(ticks, top)}</div>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{title} over time">{"".join(picture)}</svg>'
        f'<div class="x">{_x_labels(start, steps * step)}</div>'
        f'<div class="of end">{days}; one step is {format_duration(step)}</div></div>'
    )


def _stacked(series: Mapping[str, Mapping[int, float]], steps: int) -> Iterator[list[float]]:
    """Yield the baseline, then the upper edge of each area."""
    heights = [0.0] * steps
    yield heights
    for slots in series.values():
        heights = [height + slots.get(slot, 0) for slot, height in enumerate(heights)]
        yield heights


def _ticks(highest: float) -> list[float]:
    """Return round values from 0 up to about ``highest``, whole numbers where possible."""
    if highest <= 0:
        return [0.0, 1.0]
    raw = highest / _Y_TICKS
    power = 10.0 ** floor(log10(raw))
    # 2.5 only where it results in whole numbers.
    factors = (1, 2, 2.5, 5, 10) if power > 1 else (1, 2, 5, 10)
    interval = next(factor * power for factor in factors if factor * power >= raw)
    return [number * interval for number in range(int(highest / interval) + 1)]


def _y(value: float, top: float) -> float:
    return _HEIGHT * (1 - value / top)


def _horizontal_line(value: float, top: float, style: str) -> str:
    at = _y(value, top)
    return f'<line x1="0" x2="{_WIDTH}" y1="{at:.1f}" y2="{at:.1f}" {style} vector-effect="non-scaling-stroke"/>'


def _merge_highlights(highlights: Sequence[Highlight], start: float, seconds: float, step: float) -> list[Highlight]:
    """Select the visible highlights, and merge those less than a step apart, which could not be distinguished."""
    visible = (each for each in highlights if each.ended >= start and each.began <= start + seconds)
    merged: list[Highlight] = []
    lines = 0
    for each in sorted(visible, key=attrgetter("began")):
        if not merged or each.began > merged[-1].ended + step:
            merged.append(each)
            lines = 1
            continue
        lines += 1
        last = merged[-1]
        tooltip = f"{last.tooltip}\n{each.tooltip}" if lines <= _MAX_TOOLTIP_LINES else last.tooltip
        merged[-1] = Highlight(last.began, max(last.ended, each.ended), tooltip)
    return merged


def _highlight(highlight: Highlight, start: float, seconds: float) -> str:
    left = _WIDTH * max(0.0, highlight.began - start) / seconds
    right = _WIDTH * min(seconds, highlight.ended - start) / seconds
    lines = "\n".join(map(escape, highlight.tooltip.split("\n")))
    # Two pixels at least, so that the highlight of a single message is visible.
    return (
        f'<rect x="{left:.2f}" y="0" width="{max(2.0, right - left):.2f}" height="{_HEIGHT}" fill="var(--shade)">'
        f"<title>{lines}</title></rect>"
    )


def _area(upper: Sequence[float], lower: Sequence[float], top: float, color: str) -> str:
    wide = _WIDTH / len(upper)

    def edge(heights: Sequence[float]) -> list[str]:
        return [
            f"{wide * (slot + side):.1f},{_y(height, top):.1f}"
            for slot, height in enumerate(heights)
            for side in (0, 1)
        ]

    points = " ".join([*edge(upper), *reversed(edge(lower))])
    return f'<polygon fill="{color}" points="{points}"/>'


def _y_labels(ticks: Sequence[float], top: float) -> str:
    # All ticks are multiples of the first, so its decimals suffice for all.
    decimals = 0 if ticks[1] >= 1 else -floor(log10(ticks[1]))
    return "".join(f'<span style="top:{100 * (1 - tick / top):.1f}%">{tick:,.{decimals}f}</span>' for tick in ticks)


def _x_labels(start: float, seconds: float) -> str:
    interval = next((each for each in _TICK_INTERVALS if seconds / each <= _X_TICKS), _TICK_INTERVALS[-1])
    first = -(-start // interval) * interval
    times = [first + number * interval for number in range(int(seconds // interval) + 1)]
    time_format = "%H:%M:%S" if interval < _MINUTE else "%H:%M"
    return "".join(
        f'<span class="{_x_class(number, (at - start) / seconds)}" style="left:{100 * (at - start) / seconds:.2f}%">'
        f"{datetime.fromtimestamp(at, UTC):{time_format if at % _DAY else '%d %b'}}</span>"
        for number, at in enumerate(times)
        if start <= at <= start + seconds
    )


def _x_class(number: int, at: float) -> str:
    """Mark every other label for hiding on narrow screens, and the outermost ones to stay inside the chart."""
    edge = "first" if at < _EDGE_FRACTION else "last" if at > 1 - _EDGE_FRACTION else ""
    return f"{'more' if number % 2 else ''} {edge}".strip()


def _axis_title(start: float, end: float) -> str:
    """Return the title of the time axis, with the covered days."""
    first, last = (f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}" for at in (start, end))
    return f"time (UTC), {first}" if first == last else f"time (UTC), {first} to {last}"


def _legend(
    series: Mapping[str, Mapping[int, float]], highlight_label: str, reference_line: tuple[str, float] | None
) -> str:
    entries = [
        (COLORS[number % len(COLORS)], f"{name}: {sum(slots.values()):,.0f}")
        for number, (name, slots) in enumerate(series.items())
    ]
    entries += [("var(--shade)", highlight_label)] if highlight_label else []
    if reference_line is not None:
        entries.append(("var(--bad)", f"{reference_line[0]}: {reference_line[1]:,.0f}"))
    spans = (f'<span><i style="background:{color}"></i>{escape(name)}</span>' for color, name in entries)
    return f'<div class="legend">{"".join(spans)}</div>'
