"""The HTML report of the cost job. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from servicebus_pair.spark.report.formatting import pluralize
from servicebus_pair.spark.report.html import bar_chart, page, paragraphs, section, table, tiles, verdict
from servicebus_pair.spark.report.svg_timeline import timeline

_DAY: Final = 86_400.0


def render(summary: Mapping[str, Any]) -> str:
    """Return the page.

    :param summary: content of ``summary.json``.
    """
    if summary["first"] is None:
        return page("Costs", [verdict("No operations:", details="neither ledger nor meters contain any.")])
    prices, days = summary["prices"], sum(month["days"] for month in summary["months"])
    quiet = days * summary["quiet_day_total"]
    amount, plan = (_sum(summary, kind) for kind in ("measured", "quiet"))
    currency = prices["currency"]
    period = f"from {summary['first']} to {summary['last']} (UTC)" if days > 1 else f"on {summary['first']} (UTC)"
    result = f"{pluralize(summary['total'], 'operation')} {period} cost {amount} {currency}."
    details = f"{pluralize(days, 'quiet day')} would take {quiet:,} operations and cost {plan} {currency}."
    figures = {"operations": summary["total"], "quiet plan": quiet, currency: amount, f"quiet plan, {currency}": plan}
    return page(
        "Costs",
        [
            verdict(result, details=details),
            tiles(figures),
            # A chart of a single day would be one block.
            *([section("By day", _by_day(summary))] if days > 1 else []),
            section("By operation", _operations(summary, days)),
            section("By month", _months(summary, currency=currency)),
            section("Notes", paragraphs(_notes(summary))),
        ],
    )


def _sum(summary: Mapping[str, Any], kind: str) -> str:
    return str(sum((Decimal(month[kind]["amount"]) for month in summary["months"]), Decimal("0.00")))


def _by_day(summary: Mapping[str, Any]) -> str:
    first, last = (_epoch(summary[name]) for name in ("first", "last"))
    counts = {int((_epoch(day) - first) / _DAY): count for day, count in summary["by_day"].items()}
    # Extends the chart to the last day, even if it has no operations.
    slots = {int((last - first) / _DAY): 0} | counts
    quiet_day = ("a quiet day", summary["quiet_day_total"])
    return timeline({"counted": slots}, start=first, step=_DAY, unit="operations", reference_line=quiet_day)


def _epoch(day: str) -> float:
    return datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp()


def _operations(summary: Mapping[str, Any], days: int) -> str:
    names = sorted({*summary["operations"], *summary["quiet_day"]})
    rows = (
        [name.replace("_", " "), summary["operations"].get(name, 0), days * summary["quiet_day"].get(name, 0)]
        for name in names
    )
    chart = bar_chart({name.replace("_", " "): count for name, count in summary["operations"].items()})
    return chart + table(["operation", "counted", f"{pluralize(days, 'quiet day')} would take"], rows)


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


def _notes(summary: Mapping[str, Any]) -> list[str]:
    ledger = summary["ledger"]
    return [
        "A lower bound: failed attempts, pings and empty receives are in meters only; consumers are not counted.",
        f"Prices of {summary['prices']['as_of']}; the first operations of a month are included in its base charge.",
        f"The ledger holds {ledger['records']:,} records and {pluralize(ledger['torn'], 'incomplete line')}.",
    ]
