"""Draws a run: messages per second by the way they went, with the outage shaded."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from tests.system.demo.ledger import DIVERTED, PRIMARY, SYPHONED

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.typing import RcKeyType

    from tests.system.demo.ledger import Record

__all__ = ["Outage", "draw"]

INK = "#22303c"
FAINT = "#8a97a3"
GRID = "#e6eaee"
SHADE = "#f3dfdc"
DANGER = "#a8362a"
# Told apart by people with any colour vision, and in grey by their lightness.
COLOURS = {PRIMARY: "#2f6db5", DIVERTED: "#e08a1e", SYPHONED: "#3aa07c"}
LABELS = {PRIMARY: "straight to the primary", DIVERTED: "diverted to the backlog", SYPHONED: "syphoned to the primary"}
MARGIN = 2  # seconds before the flow begins
STYLE: dict[RcKeyType, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
}


@dataclass(frozen=True, slots=True)
class Outage:
    """When the primary was killed and when it was back, in seconds since the epoch."""

    began: float
    ended: float


def draw(records: Sequence[Record], outage: Outage, *, title: str, subtitle: str, path: Path) -> None:
    """Write the picture of a run.

    :param records: the ledger; at least one record.
    :param path: a PNG file, replaced when it exists.
    """
    start = beginning(records)
    seconds = range(int(max(record.at for record in records)) - start + 2)
    rates = {way: per_second(records, way, start=start) for way in COLOURS}
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 5.6), dpi=150, facecolor="white")
        axes = figure.add_axes((0.075, 0.125, 0.895, 0.655))
        counts = {way: sum(record.way == way for record in records) for way in COLOURS}
        heights = [[rates[way][second] for second in seconds] for way in COLOURS]
        axes.stackplot(seconds, heights, colors=COLOURS.values(), step="post", linewidth=0, zorder=3)
        tallest = max(sum(column) for column in zip(*heights, strict=True))
        shade(axes, outage.began - start, outage.ended - start, top=tallest)
        dress(axes, seconds=len(seconds), tallest=tallest)
        figure.text(0.075, 0.93, title, fontsize=16, fontweight="bold")
        figure.text(0.075, 0.875, subtitle, fontsize=11, color=INK)
        legend(figure, counts)
        figure.savefig(path)


def beginning(records: Sequence[Record]) -> int:
    """Return the second in which the flow begins, in seconds since the epoch.

    That is a moment before the first percent of all records: a few messages come from a task that is done long before
    Spark has started, and the silence between says nothing.
    """
    moments = sorted(record.at for record in records)
    return int(moments[len(moments) // 100]) - MARGIN


def per_second(records: Sequence[Record], way: str, *, start: int) -> Counter[int]:
    """Return how many messages went this way in each second since the start."""
    return Counter(int(record.at) - start for record in records if record.way == way)


def shade(axes: Axes, began: float, ended: float, *, top: float) -> None:
    """Mark the outage, and say what it was."""
    axes.axvspan(began, ended, color=SHADE, linewidth=0, zorder=1)
    for moment in (began, ended):
        axes.axvline(moment, color=DANGER, linewidth=1, zorder=4)
    axes.text(
        (began + ended) / 2,
        top * 1.14,
        f"the primary is dead\n{ended - began:.0f} s",
        color=DANGER,
        ha="center",
        va="center",
        linespacing=1.4,
        zorder=5,
    )


def dress(axes: Axes, *, seconds: int, tallest: float) -> None:
    """Set limits, labels and lines."""
    axes.set_xlim(0, seconds)
    axes.set_ylim(0, tallest * 1.24)
    axes.set_xlabel("seconds")
    axes.set_ylabel("messages per second")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True, steps=[1, 2, 3, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(axis="y", color=GRID, linewidth=0.8, zorder=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)
    axes.set_axisbelow(True)


def legend(figure: Figure, totals: dict[str, int]) -> None:
    """Write one line of keys with their totals, above the plot."""
    left = 0.075
    for way, total in totals.items():
        label = f"{LABELS[way]}  {total:,}"
        figure.text(left, 0.812, "■", color=COLOURS[way], fontsize=13)
        figure.text(left + 0.018, 0.814, label)
        left += 0.032 + 0.0083 * len(label)
