"""Building blocks of the HTML reports: self-contained, for light and dark mode and any width. Pure.

All text is escaped. A page loads no resources and runs no scripts, and a content security policy enforces that.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final

# CSS variables; the palette is safe for color blindness, and its lightness differs enough for grayscale print.
COLORS: Final = tuple(f"var(--c{number})" for number in range(8))
_MAX_ROWS: Final = 200
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'"
_LIGHT: Final = (
    "--ink:#1c2733;--soft:#5a6875;--rule:#dce2e8;--ground:#ffffff;--card:#f5f7f9;--bad:#b3261e;--good:#1b7345;--open:#8a5a00;"
    "--shade:#c0392b26;--c0:#2f6db5;--c1:#e08a1e;--c2:#3aa07c;--c3:#7b4fb0;--c4:#b5483a;--c5:#5c7f1f;--c6:#c2528b;--c7:#6b7885"
)
_DARK: Final = (
    "--ink:#e6ebf0;--soft:#9eabb8;--rule:#36424e;--ground:#12181f;--card:#1b232c;--bad:#ff8a80;--good:#6fd39b;--open:#f2c14e;"
    "--shade:#ff6f6133;--c0:#6ba6ea;--c1:#f0a646;--c2:#57c79c;--c3:#b591e6;--c4:#e58375;--c5:#a3cf5b;--c6:#ec8fbd;--c7:#a2afbc"
)
_STYLE: Final = (
    f":root{{color-scheme:light dark;{_LIGHT}}}@media(prefers-color-scheme:dark){{:root{{{_DARK}}}}}"
    "*{box-sizing:border-box}body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;padding:1.5rem 1rem 3rem;"
    "max-width:68rem;color:var(--ink);background:var(--ground);overflow-wrap:break-word}"
    "h1{font-size:1.5rem;line-height:1.25;margin:0 0 .75rem;"
    "overflow-wrap:anywhere}h2{font-size:1.1rem;margin:2.25rem 0 .5rem}h3{font-size:1rem;margin:1.5rem 0 .5rem}"
    "p{margin:.4rem 0}.soft{color:var(--soft)}code{font-size:.85rem;overflow-wrap:anywhere}"
    ".verdict{font-size:1.1rem;padding:.7rem 1rem;border-left:4px solid var(--soft);background:var(--card)}"
    ".verdict.good{border-color:var(--good)}.verdict.bad{border-color:var(--bad)}"
    ".verdict.good b{color:var(--good)}.verdict.bad b{color:var(--bad)}"
    ".verdict.open{border-color:var(--open)}.verdict.open b{color:var(--open)}"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(6.4rem,1fr));gap:.6rem;margin:1rem 0}"
    ".tiles div{background:var(--card);padding:.55rem .65rem}.tiles dt{color:var(--soft);font-size:.78rem}"
    ".tiles dd{margin:0;font-size:1.3rem;font-variant-numeric:tabular-nums}.tiles .bad dd{color:var(--bad)}"
    ".wide{overflow-x:auto;margin:.5rem 0}table{border-collapse:collapse;font-size:.88rem;"
    "font-variant-numeric:tabular-nums}"
    "th,td{padding:.35rem .7rem;border-bottom:1px solid var(--rule);text-align:right;white-space:nowrap}"
    "th{font-weight:600;color:var(--soft);vertical-align:bottom;white-space:normal;min-width:4.2rem}"
    ".wide th:first-child,.wide td:first-child{position:sticky;left:0;background:var(--ground);max-width:16rem;"
    "overflow:hidden;text-overflow:ellipsis}th.text,td.text{text-align:left}"
    ".bars{width:100%}.bars td,.bars th{border:0;padding:.15rem .5rem;text-align:left}.bars th{font-weight:400;"
    "color:var(--ink);white-space:nowrap;width:1%;text-align:right}.bars td:nth-child(n+3){width:1%;text-align:right}"
    ".bars i{display:block;position:relative;height:1rem;background:linear-gradient(var(--c0),var(--c0)) no-repeat;"
    "min-width:4rem}"
    ".plot{display:grid;grid-template-columns:auto 1fr;column-gap:.5rem;margin:.5rem 0}.plot svg{display:block;"
    "width:100%;height:15rem;background:var(--card)}.plot .y{position:relative;min-width:3.2rem}"
    ".plot .x{grid-column:2;position:relative;height:1.4rem}.plot span{position:absolute;font-size:.75rem;"
    "color:var(--soft);white-space:nowrap;font-variant-numeric:tabular-nums}"
    ".plot .y span{right:0;transform:translateY(-50%)}"
    ".plot .x span{top:.2rem;transform:translateX(-50%)}.plot .x .first{transform:none}"
    ".plot .x .last{transform:translateX(-100%)}.plot .of{grid-column:1/3;font-size:.8rem;color:var(--soft)}"
    ".plot .of.end{grid-column:2;text-align:center;margin:0}.legend{display:flex;flex-wrap:wrap;gap:.2rem 1.2rem;"
    "font-size:.85rem;margin:.3rem 0}.legend i{display:inline-block;width:.8rem;height:.8rem;margin-right:.4rem;"
    "vertical-align:-.05rem}ul{padding-left:1.2rem}"
    "@media(max-width:34rem){.plot .x .more{display:none}.tiles dd{font-size:1.1rem}th,td{padding:.3rem .5rem}"
    ".wide th:first-child,.wide td:first-child{max-width:8rem}}"
    "@media print{.wide{overflow:visible}}"
)


def escape(text: str) -> str:
    """Return a text as HTML; what is not printed, or changes the direction of writing, as an escape sequence."""
    shown = (each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
    return html.escape("".join(shown))


def page(title: str, parts: Iterable[str], *, heading: str | None = None) -> str:
    """Return a page.

    :param parts: HTML fragments.
    :param heading: default: the title.
    """
    head = (
        f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>"
    )
    body = f"<h1>{escape(title if heading is None else heading)}</h1>{''.join(parts)}"
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def verdict(text: str, *, details: str = "", kind: str = "") -> str:
    """Return the highlighted result at the top of a page.

    :param details: follows in normal type.
    :param kind: selects the color: ``good``, ``bad`` or ``open``; default: neutral.
    """
    classes = f"verdict {kind}".strip()
    return f'<p class="{classes}"><b>{escape(text)}</b> {escape(details)}</p>'


def tiles(values: Mapping[str, Any], *, bad: Iterable[str] = ()) -> str:
    """Return the key figures in large type.

    :param bad: names of the figures to highlight.
    """
    highlighted = frozenset(bad)
    parts = (
        f"<div{' class=bad' if name in highlighted else ''}><dt>{escape(name)}</dt><dd>{format_cell(value)}</dd></div>"
        for name, value in values.items()
    )
    return f'<dl class="tiles">{"".join(parts)}</dl>'


def section(title: str, *parts: str, description: str | None = None) -> str:
    """Return a titled section.

    :param description: a paragraph below the title.
    """
    intro = "" if description is None else f'<p class="soft">{escape(description)}</p>'
    return f"<h2>{escape(title)}</h2>{intro}{''.join(parts)}"


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, text_columns: Iterable[int] = (0,)) -> str:
    """Return a table of at most 200 rows; numbers have thousands separators, ``None`` is an empty cell.

    :param text_columns: indexes of left-aligned columns.
    """
    left_aligned = frozenset(text_columns)

    def line(cells: Iterable[str], tag: str) -> str:
        row = (
            f'<{tag} class="text">{cell}</{tag}>' if index in left_aligned else f"<{tag}>{cell}</{tag}>"
            for index, cell in enumerate(cells)
        )
        return f"<tr>{''.join(row)}</tr>"

    remaining = iter(rows)
    body = "".join(line(map(format_cell, row), "td") for row in islice(remaining, _MAX_ROWS))
    omitted = sum(1 for _ in remaining)
    more = f'<p class="soft">{omitted:,} more are in the tables of this folder.</p>' if omitted else ""
    return f'<div class="wide"><table>{line(map(escape, columns), "th")}{body}</table></div>{more}'


def paragraphs(texts: Iterable[str]) -> str:
    """Return a paragraph per text."""
    return "".join(f"<p>{escape(text)}</p>" for text in texts)


def bar_chart(values: Mapping[str, int]) -> str:
    """Return a horizontal bar chart with values and percentages."""
    total, highest = sum(values.values()), max(values.values(), default=0)
    rows = (
        f'<tr><th scope="row">{escape(name)}</th>'
        f'<td><i style="background-size:{100 * value / max(1, highest):.2f}% 100%"></i></td>'
        f"<td>{format_cell(value)}</td><td>{100 * value / max(1, total):.1f} %</td></tr>"
        for name, value in values.items()
    )
    return f'<table class="bars">{"".join(rows)}</table>'


def format_cell(value: Any) -> str:
    """Return a value as HTML."""
    match value:
        case None:
            return ""
        case float():
            return f"{value:,.1f}"
        case int() if not isinstance(value, bool):
            return f"{value:,}"
    return escape(str(value))
