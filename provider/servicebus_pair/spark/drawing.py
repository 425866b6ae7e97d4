"""What pages for people are made of: one HTML file that needs nothing else, with plots in it. Pure.

All text that is given is shown as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

__all__ = ["bars", "lines", "notes", "page", "table"]

_WIDTH: Final = 960
_HEIGHT: Final = 220
_BAR: Final = 22
_LABEL: Final = 220
_PALETTE: Final = ("#2b6cb0", "#c05621", "#2f855a", "#6b46c1", "#b7791f", "#c53030", "#2c7a7b", "#4a5568")
_STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:62rem;color:#1a202c}"
    "table{border-collapse:collapse;margin:1rem 0}th,td{padding:.3rem .6rem;border-bottom:1px solid #cbd5e0;"
    "text-align:right}th:first-child,td:first-child{text-align:left}.bad{color:#c53030}.good{color:#276749}"
    "svg{background:#f7fafc;width:100%}"
)


def page(title: str, parts: Iterable[str], *, heading: str | None = None) -> str:
    """Answer a page of parts that are HTML already.

    :param heading: the title when not given.
    """
    shown = title if heading is None else heading
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    body = f"<h1>{escape(shown)}</h1>{''.join(parts)}"
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Answer a table; numbers are grouped by thousands, ``None`` is an empty cell."""
    head = "".join(f"<th>{escape(title)}</th>" for title in columns)
    body = "".join(f"<tr>{''.join(f'<td>{_shown(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table><tr>{head}</tr>{body}</table>"


def notes(texts: Iterable[str]) -> str:
    """Answer paragraphs."""
    return "".join(f"<p>{escape(text)}</p>" for text in texts)


def lines(series: Mapping[str, Mapping[int, float]], *, step: float) -> str:
    """Answer a plot of counts over time, a line each, as counts per second.

    :param series: by name, then by number of the step; at least one, and none empty.
    :param step: length of a step, seconds.
    """
    steps = 1 + max(max(slots) for slots in series.values())
    highest = max(max(slots.values()) for slots in series.values())
    colours = dict(zip(series, _colours(len(series)), strict=True))
    drawn = (_line(slots, colours[name], steps=steps, highest=highest) for name, slots in series.items())
    scale = (
        f'<text x="4" y="14" font-size="12">{highest / step:,.{0 if highest >= step else 3}f} a second</text>'
        f'<text x="{_WIDTH - 4}" y="{_HEIGHT - 4}" font-size="12" text-anchor="end">{steps * step:,.0f} s</text>'
    )
    legend = " ".join(f'<span style="color:{colours[name]}">&#9632; {escape(name)}</span>' for name in series)
    return f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">{"".join(drawn)}{scale}</svg><p>{legend}</p>'


def bars(values: Mapping[str, float], *, marks: Mapping[str, float] | None = None) -> str:
    """Answer a plot of a bar for each name.

    :param marks: values that bars are compared with, by the same names: a stroke on the bar.
    """
    compared = {} if marks is None else marks
    highest = max([1, *values.values(), *compared.values()])
    width = _WIDTH - _LABEL - 120
    parts = []
    for number, (name, value) in enumerate(values.items()):
        top, length = number * _BAR, width * value / highest
        parts.append(
            f'<text x="{_LABEL - 8}" y="{top + 15}" font-size="12" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{_LABEL}" y="{top + 3}" width="{length:.1f}" height="{_BAR - 7}" fill="{_PALETTE[0]}"/>'
            f'<text x="{_LABEL + length + 6:.1f}" y="{top + 15}" font-size="12">{_shown(value)}</text>'
        )
        if name in compared:
            at = _LABEL + width * compared[name] / highest
            parts.append(f'<rect x="{at:.1f}" y="{top + 1}" width="2" height="{_BAR - 3}" fill="{_PALETTE[1]}"/>')
    return f'<svg viewBox="0 0 {_WIDTH} {_BAR * len(values) + 4}" role="img">{"".join(parts)}</svg>'


def _line(slots: Mapping[int, float], colour: str, *, steps: int, highest: float) -> str:
    points = " ".join(
        f"{_WIDTH * slot / max(1, steps - 1):.1f},{_HEIGHT * (1 - 0.9 * slots.get(slot, 0) / highest):.1f}"
        for slot in range(steps)
    )
    return f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>'


def _colours(count: int) -> list[str]:
    return [_PALETTE[number % len(_PALETTE)] for number in range(count)]


def _shown(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool() | str():
            return escape(str(value))
        case float():
            return f"{value:,.1f}"
        case int():
            return f"{value:,}"
    return escape(str(value))
