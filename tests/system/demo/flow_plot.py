"""Plots messages per second by route, with the outage shaded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.typing import RcKeyType

from tests.system.demo.ledger import DIVERTED, PRIMARY, SPOOLED, SYPHONED, Record

TEXT = "#22303c"
MUTED = "#8a97a3"
GRID = "#e6eaee"
SHADE = "#f3dfdc"
DARK_SHADE = "#e3b9b3"
DANGER = "#a8362a"
# Distinguishable with any colour vision deficiency, and in greyscale by lightness.
COLOURS = {PRIMARY: "#2f6db5", DIVERTED: "#e08a1e", SPOOLED: "#6a3d9a", SYPHONED: "#3aa07c"}
LABELS = {
    PRIMARY: "to the primary",
    DIVERTED: "to the backlog",
    SPOOLED: "to the spool",
    SYPHONED: "drained to the primary",
}
MARGIN = 2  # seconds before the first messages
STYLE: dict[RcKeyType, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "text.color": TEXT,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": TEXT,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": TEXT,
    "ytick.labelcolor": TEXT,
}


@dataclass(frozen=True, slots=True)
class Outage:
    """Times of the kill and the restart, in seconds since the epoch."""

    started_at: float
    ended_at: float


def plot_flow(
    records: Sequence[Record],
    outage: Outage,
    *,
    secondary_outage: Outage | None = None,
    title: str,
    subtitle: str,
    path: Path,
) -> None:
    """Write the plot of a run as PNG.

    :param records: of the ledger; at least one.
    :param secondary_outage: when the secondary was down, too.
    """
    start = first_second(records)
    seconds = range(int(max(record.at for record in records)) - start + 2)
    rates = {route: per_second(records, route, start=start) for route in COLOURS}
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(11, 5.6), dpi=150, facecolor="white")
        axes = figure.add_axes((0.075, 0.125, 0.895, 0.655))
        counts = {route: sum(record.route == route for record in records) for route in COLOURS}
        heights = [[rates[route][second] for second in seconds] for route in COLOURS]
        axes.stackplot(seconds, heights, colors=COLOURS.values(), step="post", linewidth=0, zorder=3)
        highest = max(sum(column) for column in zip(*heights, strict=True))
        shade(axes, outage.started_at - start, outage.ended_at - start, top=highest)
        if secondary_outage is not None:
            began, ended = secondary_outage.started_at - start, secondary_outage.ended_at - start
            axes.axvspan(began, ended, color=DARK_SHADE, linewidth=0, zorder=2)
            axes.text((began + ended) / 2, highest * 0.97, "both down", color=DANGER, ha="center", zorder=5)
        format_axes(axes, seconds=len(seconds), highest=highest)
        figure.text(0.075, 0.93, title, fontsize=16, fontweight="bold")
        figure.text(0.075, 0.875, subtitle, fontsize=11, color=TEXT)
        write_legend(figure, counts)
        figure.savefig(path)


def first_second(records: Sequence[Record]) -> int:
    """Return the start of the time axis, in seconds since the epoch.

    It skips the first percent of the records: one task sends a few messages long before Spark has started.
    """
    times = sorted(record.at for record in records)
    return int(times[len(times) // 100]) - MARGIN


def per_second(records: Sequence[Record], route: str, *, start: int) -> Counter[int]:
    return Counter(int(record.at) - start for record in records if record.route == route)


def shade(axes: Axes, started: float, ended: float, *, top: float) -> None:
    axes.axvspan(started, ended, color=SHADE, linewidth=0, zorder=1)
    for at in (started, ended):
        axes.axvline(at, color=DANGER, linewidth=1, zorder=4)
    axes.text(
        (started + ended) / 2,
        top * 1.14,
        f"primary down\n{ended - started:.0f} s",
        color=DANGER,
        ha="center",
        va="center",
        linespacing=1.4,
        zorder=5,
    )


def format_axes(axes: Axes, *, seconds: int, highest: float) -> None:
    axes.set_xlim(0, seconds)
    axes.set_ylim(0, highest * 1.24)
    axes.set_xlabel("seconds")
    axes.set_ylabel("messages per second")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=12, integer=True, steps=[1, 2, 3, 5, 10]))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(axis="y", color=GRID, linewidth=0.8, zorder=0)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)
    axes.set_axisbelow(True)


def write_legend(figure: Figure, totals: dict[str, int]) -> None:
    left = 0.075
    for route, total in totals.items():
        label = f"{LABELS[route]}  {total:,}"
        figure.text(left, 0.812, "■", color=COLOURS[route], fontsize=13)
        figure.text(left + 0.018, 0.814, label)
        left += 0.032 + 0.0083 * len(label)
