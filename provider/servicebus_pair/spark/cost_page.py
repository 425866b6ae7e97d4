"""The costs for people: one HTML file that needs nothing else. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from servicebus_pair.spark.drawing import bars, notes, page, section, table, tiles, verdict
from servicebus_pair.spark.plotting import timeline
from servicebus_pair.spark.quantities import count_of

__all__ = ["render"]

_DAY: Final = 86_400.0


def render(summary: Mapping[str, Any]) -> str:
    """Answer the page.

    :param summary: what ``summary.json`` will hold.
    """
    if summary["first"] is None:
        return page("Costs", [verdict("Nothing was counted:", more="neither ledger nor meters tell of an operation.")])
    prices, days = summary["prices"], sum(month["days"] for month in summary["months"])
    quiet = days * summary["quiet_day_total"]
    amount, plan = (_sum(summary, kind) for kind in ("measured", "quiet"))
    currency = prices["currency"]
    period = f"from {summary['first']} to {summary['last']} (UTC)" if days > 1 else f"on {summary['first']} (UTC)"
    said = f"{count_of(summary['total'], 'operation')} {period} cost {amount} {currency}."
    more = f"{count_of(days, 'quiet day')} would take {quiet:,} operations and cost {plan} {currency}."
    figures = {"operations": summary["total"], "quiet plan": quiet, currency: amount, f"quiet plan, {currency}": plan}
    return page(
        "Costs",
        [
            verdict(said, more=more),
            tiles(figures),
            # The plot of a single day would be one block.
            *([section("By day", _by_day(summary))] if days > 1 else []),
            section("By operation", _operations(summary, days)),
            section("By month", _months(summary, currency=currency)),
            section("Notes", notes(_said(summary))),
        ],
    )


def _sum(summary: Mapping[str, Any], kind: str) -> str:
    return str(sum((Decimal(month[kind]["amount"]) for month in summary["months"]), Decimal("0.00")))


def _by_day(summary: Mapping[str, Any]) -> str:
    first, last = (_epoch(summary[name]) for name in ("first", "last"))
    counts = {int((_epoch(day) - first) / _DAY): count for day, count in summary["by_day"].items()}
    # The last day is there whatever happened on it.
    slots = {int((last - first) / _DAY): 0} | counts
    level = ("a quiet day", summary["quiet_day_total"])
    return timeline({"counted": slots}, start=first, step=_DAY, what="operations", level=level)


def _epoch(day: str) -> float:
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()


def _operations(summary: Mapping[str, Any], days: int) -> str:
    names = sorted({*summary["operations"], *summary["quiet_day"]})
    rows = (
        [name.replace("_", " "), summary["operations"].get(name, 0), days * summary["quiet_day"].get(name, 0)]
        for name in names
    )
    plot = bars({name.replace("_", " "): count for name, count in summary["operations"].items()})
    return plot + table(["operation", "counted", f"{count_of(days, 'quiet day')} would take"], rows)


def _months(summary: Mapping[str, Any], *, currency: str) -> str:
    columns = ["month", "days", "operations", "billable", f"{currency}", "quiet: operations", f"quiet: {currency}"]
    return table(
        columns,
        (
            [
                month["month"],
                month["days"],
                month["measured"]["total"],
                month["measured"]["billable"],
                month["measured"]["amount"],
                month["quiet"]["total"],
                month["quiet"]["amount"],
            ]
            for month in summary["months"]
        ),
    )


def _said(summary: Mapping[str, Any]) -> list[str]:
    ledger = summary["ledger"]
    return [
        "A lower bound: failed attempts, pings and empty receives are in meters alone; what is consumed, in none.",
        f"Prices of {summary['prices']['as_of']}; the first operations of a month are included in its base charge.",
        f"The ledger holds {ledger['records']:,} records and {count_of(ledger['torn'], 'unfinished line')}.",
    ]
