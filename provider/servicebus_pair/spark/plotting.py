"""Plots of counts over time, as HTML and SVG that fit any width. Pure.

The areas are drawn in a picture that is stretched; labels stand beside it as text, so they keep their size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from itertools import pairwise
from math import floor, log10
from operator import attrgetter
from typing import Final

from servicebus_pair.spark.drawing import COLOURS
from servicebus_pair.spark.quantities import duration

__all__ = ["Shade", "timeline"]

_WIDTH: Final = 1000
_HEIGHT: Final = 240
_HEADROOM: Final = 1.08
_Y_TICKS: Final = 4
_X_TICKS: Final = 7
_MOST_SAID: Final = 10
_EDGE: Final = 0.07
_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_UNITS: Final = {"second": 1, "minute": _MINUTE, "hour": _HOUR, "day": _DAY}
_EVERY: Final = (
    *(1, 2, 5, 10, 15, 30),
    *(_MINUTE * number for number in (1, 2, 5, 10, 15, 30)),
    *(_HOUR * number for number in (1, 2, 3, 6, 12)),
    *(_DAY * number for number in (1, 2, 3, 7, 14, 28, 91, 182, 364)),
)


@dataclass(frozen=True, slots=True)
class Shade:
    """A time that stands out; seconds since the Unix epoch.

    :param says: what a reader who points at it is told.
    """

    began: float
    ended: float
    says: str


def timeline(
    series: Mapping[str, Mapping[int, float]],
    *,
    start: float,
    step: float,
    what: str = "messages",
    shades: Sequence[Shade] = (),
    shaded: str = "",
    level: tuple[str, float] | None = None,
) -> str:
    """Answer a plot of counts over time, one area on the other.

    :param series: by name, then by number of the step; at least one, and none empty.
    :param start: of step 0, seconds since the Unix epoch.
    :param step: length of a step, seconds.
    :param what: is counted.
    :param shaded: what the shades mean.
    :param level: a name, and how many in a step a line is to be drawn at.
    """
    steps = 1 + max(max(slots) for slots in series.values())
    unit = max((name for name, length in _UNITS.items() if length <= max(1, step)), key=_UNITS.__getitem__)
    scale = _UNITS[unit] / step
    stacked = list(_stacked(series, steps))
    highest = max([*stacked[-1], 0 if level is None else level[1]]) * scale
    ticks = _ticks(highest)
    top = max(highest * _HEADROOM, ticks[-1])
    picture = [
        *(_grid(value, top) for value in ticks[1:]),
        *(_shade(shade, start, steps * step) for shade in _merged(shades, start, steps * step, step)),
        *(
            _area(
                [count * scale for count in upper],
                [count * scale for count in lower],
                top,
                COLOURS[number % len(COLOURS)],
            )
            for number, (lower, upper) in enumerate(pairwise(stacked))
        ),
        *([] if level is None else [_level(level[1] * scale, top)]),
    ]
    return (
        f"{_legend(series, shaded if shades else '', level)}"
        f'<div class="plot"><div class="of">{escape(what)} per {unit}</div><div class="y">{_y_labels(ticks, top)}</div>'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(what)} per {unit} over time">{"".join(picture)}</svg>'
        f'<div class="x">{_x_labels(start, steps * step)}</div>'
        f'<div class="of end">{_clock(start, start + steps * step)}; one step is {duration(step)}</div></div>'
    )


def _stacked(series: Mapping[str, Mapping[int, float]], steps: int) -> Iterator[list[float]]:
    """The floor of the first area, and the top of each."""
    heights = [0.0] * steps
    yield heights
    for slots in series.values():
        heights = [height + slots.get(slot, 0) for slot, height in enumerate(heights)]
        yield heights


def _ticks(highest: float) -> list[float]:
    """Round numbers from 0 up to about ``highest``; counts have whole ones where they can."""
    if highest <= 0:
        return [0.0, 1.0]
    raw = highest / _Y_TICKS
    power = 10.0 ** floor(log10(raw))
    # Halves only where they are whole.
    factors = (1, 2, 2.5, 5, 10) if power > 1 else (1, 2, 5, 10)
    every = next(factor * power for factor in factors if factor * power >= raw)
    return [number * every for number in range(int(highest / every) + 1)]


def _y(value: float, top: float) -> float:
    return _HEIGHT * (1 - value / top)


def _grid(value: float, top: float) -> str:
    at = _y(value, top)
    return (
        f'<line x1="0" x2="{_WIDTH}" y1="{at:.1f}" y2="{at:.1f}" stroke="var(--rule)" '
        'vector-effect="non-scaling-stroke"/>'
    )


def _level(value: float, top: float) -> str:
    at = _y(value, top)
    return (
        f'<line x1="0" x2="{_WIDTH}" y1="{at:.1f}" y2="{at:.1f}" stroke="var(--bad)" stroke-width="2" '
        'stroke-dasharray="6 4" vector-effect="non-scaling-stroke"/>'
    )


def _merged(shades: Sequence[Shade], start: float, seconds: float, step: float) -> list[Shade]:
    """Those of the time of the plot; what is less than a step apart, together: no more than can be seen."""
    seen = (shade for shade in shades if shade.ended >= start and shade.began <= start + seconds)
    merged: list[Shade] = []
    held = 0
    for shade in sorted(seen, key=attrgetter("began")):
        if not merged or shade.began > merged[-1].ended + step:
            merged.append(shade)
            held = 1
            continue
        held += 1
        last = merged[-1]
        says = f"{last.says}\n{shade.says}" if held <= _MOST_SAID else last.says
        merged[-1] = Shade(last.began, max(last.ended, shade.ended), says)
    return merged


def _shade(shade: Shade, start: float, seconds: float) -> str:
    left = _WIDTH * max(0.0, shade.began - start) / seconds
    right = _WIDTH * min(seconds, shade.ended - start) / seconds
    # Of a single message, too, a stroke is seen.
    return (
        f'<rect x="{left:.2f}" y="0" width="{max(2.0, right - left):.2f}" height="{_HEIGHT}" fill="var(--shade)">'
        f"<title>{escape(shade.says)}</title></rect>"
    )


def _area(upper: Sequence[float], lower: Sequence[float], top: float, colour: str) -> str:
    wide = _WIDTH / len(upper)

    def edge(heights: Sequence[float]) -> list[str]:
        return [
            f"{wide * (slot + side):.1f},{_y(height, top):.1f}"
            for slot, height in enumerate(heights)
            for side in (0, 1)
        ]

    points = " ".join([*edge(upper), *reversed(edge(lower))])
    return f'<polygon fill="{colour}" points="{points}"/>'


def _y_labels(ticks: Sequence[float], top: float) -> str:
    # Ticks are whole multiples of the first one, so that has all the places there are.
    places = 0 if ticks[1] >= 1 else -floor(log10(ticks[1]))
    return "".join(f'<span style="top:{100 * (1 - tick / top):.1f}%">{tick:,.{places}f}</span>' for tick in ticks)


def _x_labels(start: float, seconds: float) -> str:
    every = next((each for each in _EVERY if seconds / each <= _X_TICKS), _EVERY[-1])
    first = -(-start // every) * every
    moments = [first + number * every for number in range(int(seconds // every) + 1)]
    form = "%H:%M:%S" if every < _MINUTE else "%H:%M"
    return "".join(
        f'<span class="{_x_class(number, (at - start) / seconds)}" style="left:{100 * (at - start) / seconds:.2f}%">'
        f"{datetime.fromtimestamp(at, UTC):{form if at % _DAY else '%d %b'}}</span>"
        for number, at in enumerate(moments)
        if start <= at <= start + seconds
    )


def _x_class(number: int, at: float) -> str:
    """Which labels give way on narrow screens, and which stand at an edge and must not reach beyond it."""
    edge = "first" if at < _EDGE else "last" if at > 1 - _EDGE else ""
    return f"{'more' if number % 2 else ''} {edge}".strip()


def _clock(start: float, end: float) -> str:
    """The title of the time axis: its day, or its days."""
    first, last = (f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d}" for at in (start, end))
    return f"time (UTC), {first}" if first == last else f"time (UTC), {first} to {last}"


def _legend(series: Mapping[str, Mapping[int, float]], shaded: str, level: tuple[str, float] | None) -> str:
    keys = [
        (COLOURS[number % len(COLOURS)], f"{name}: {sum(slots.values()):,.0f}")
        for number, (name, slots) in enumerate(series.items())
    ]
    keys += [("var(--shade)", shaded)] if shaded else []
    keys += [] if level is None else [("var(--bad)", f"{level[0]}: {level[1]:,.0f}")]
    made = (f'<span><i style="background:{colour}"></i>{escape(name)}</span>' for colour, name in keys)
    return f'<div class="legend">{"".join(made)}</div>'
