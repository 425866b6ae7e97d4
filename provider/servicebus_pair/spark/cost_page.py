"""The costs for people: one HTML file that needs nothing else. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from servicebus_pair.spark.drawing import bars, notes, page, table

__all__ = ["render"]


def render(summary: Mapping[str, Any]) -> str:
    """Answer the page.

    :param summary: what ``summary.json`` will hold.
    """
    if summary["first"] is None:
        return page("Costs", [notes(["Nothing was counted."])])
    prices, quiet = summary["prices"], summary["quiet_day_total"]
    names = sorted({*summary["operations"], *summary["quiet_day"]})
    days = sum(month["days"] for month in summary["months"])
    parts = [
        notes([f"{summary['total']:,} operations from {summary['first']} to {summary['last']} (UTC)."]),
        table(
            ["operation", "counted", f"{days:,} quiet days would take"],
            (
                [name.replace("_", " "), summary["operations"].get(name, 0), days * summary["quiet_day"].get(name, 0)]
                for name in names
            ),
        ),
        "<h2>By day; the stroke is what a quiet day takes</h2>",
        bars(summary["by_day"], marks=dict.fromkeys(summary["by_day"], quiet)),
        "<h2>By month</h2>",
        _months(summary, currency=prices["currency"]),
        "<h2>Notes</h2>",
        notes(_said(summary)),
    ]
    return page("Costs", parts)


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
        f"The ledger holds {ledger['records']:,} records and {ledger['torn']:,} unfinished lines.",
    ]
