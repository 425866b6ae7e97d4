"""``cost``: what a ledger and meters tell of operations, to a bill by month, against the plan of quiet days.

The output folder holds, all of it this job's own:

===================  ==========================================================================
``operations/``      Parquet, a row per day, run, source and operation: how many
``bills/``           Parquet, a row per month and kind (``measured``, ``quiet``): operations, billable, amount
``report.html``      the same for people, one self-contained file
``summary.json``     the same for programs; removed first and written last, so that it stands
                     only beside complete tables
===================  ==========================================================================
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core.costs import BILLED_BYTES, STANDARD_PRICES, Bill, Operations, PriceList, bill
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.ledger_costs import operations_of
from servicebus_pair.core.pair import NamespacePair
from servicebus_pair.spark.cost_page import render
from servicebus_pair.spark.evidence import ledger_figures, read_ledger
from servicebus_pair.spark.files import write_json
from servicebus_pair.spark.metering import LEDGER, DayCount, Metered, with_meters
from servicebus_pair.spark.mounts import for_spark, shared
from servicebus_pair.spark.reconciliation import LedgerFigures
from servicebus_pair.spark.redaction import Redaction
from servicebus_pair.spark.references import PairReference
from servicebus_pair.spark.shape import Shape

__all__ = ["Costs", "MonthBill", "cost", "count_records"]

_log = logging.getLogger(__name__)
_VERSION: Final = 1
_DAY: Final = timedelta(days=1)
_OPERATIONS: Final = Shape(
    {"day": "string", "run": "string", "source": "string", "operation": "string", "count": "bigint"}
)
_BILLS: Final = Shape(
    {
        "month": "string",
        "kind": "string",
        "days": "bigint",
        "operations": "bigint",
        "billable": "bigint",
        "amount": "string",
        "currency": "string",
        "prices_as_of": "string",
    }
)


@dataclass(frozen=True, slots=True)
class MonthBill:
    """One month: what was counted, and what as many quiet days would have taken.

    :param month: its first day.
    :param days: days of it that lie in the period.
    """

    month: date
    days: int
    measured: Bill
    quiet: Bill


@dataclass(frozen=True, slots=True)
class Costs:
    """Operations and what they cost; a lower bound, and each month as if nothing else were billed but ``before``.

    :param first: first day of the period, in UTC; ``None`` when nothing was counted.
    :param last: its last day.
    :param quiet_day: what one day takes on which nothing happens: the polls of a continuous syphon.
    """

    first: date | None
    last: date | None
    counts: Sequence[DayCount]
    months: Sequence[MonthBill]
    quiet_day: Operations
    ledger: LedgerFigures
    prices: PriceList

    @property
    def operations(self) -> Operations:
        """All that was counted."""
        return sum((each.operations for each in self.counts), Operations())

    def to_json(self) -> dict[str, Any]:
        """The form of ``summary.json``."""
        days: dict[str, int] = {}
        for each in sorted(self.counts, key=lambda count: count.day):
            days[each.day.isoformat()] = days.get(each.day.isoformat(), 0) + each.operations.total
        return {
            "version": _VERSION,
            "job": "cost",
            "first": None if self.first is None else self.first.isoformat(),
            "last": None if self.last is None else self.last.isoformat(),
            "operations": _counted(self.operations),
            "total": self.operations.total,
            "by_day": days,
            "quiet_day": _counted(self.quiet_day),
            "quiet_day_total": self.quiet_day.total,
            "months": [
                {
                    "month": f"{each.month:%Y-%m}",
                    "days": each.days,
                    "measured": _billed(each.measured),
                    "quiet": _billed(each.quiet),
                }
                for each in self.months
            ],
            "prices": {"as_of": self.prices.as_of.isoformat(), "currency": self.prices.currency},
            "ledger": asdict(self.ledger),
        }


def cost(
    spark: SparkSession,
    *,
    pair_reference: str,
    ledger: str,
    output: str,
    metered: Sequence[Metered] = (),
    since: date | None = None,
    until: date | None = None,
    prices: PriceList = STANDARD_PRICES,
    before: int = 0,
) -> Costs:
    """Count the operations of a period, bill them by month, and write the output folder. Idempotent.

    It talks to no namespace; of the pair, its options make the plan. What no ledger and no meter knows, such as what
    consumers receive, is not in the bill: it is a lower bound.

    :param ledger: folder of the ledger; files in folders below it count too.
    :param output: folder, on a file system that driver and executors share.
    :param metered: what meters have counted, such as the reports of drains; of a run and operation that the ledger
        tells of too, the greater count stands.
    :param since: first day, in UTC; that of the first record when not given.
    :param until: last day; that of the last record when not given.
    :param before: operations of each month by others.
    :raises ConfigurationError: an argument, the ledger or the pair's settings are not what they should be.
    """
    if since is not None and until is not None and since > until:
        raise ConfigurationError(f"since is {since}: it must not be after until, which is {until}")
    folder = Path(shared(output, what="output"))
    bill(Operations(), prices, before=before)
    quiet_day = _quiet_day(pair_reference)
    records = read_ledger(spark, ledger)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "summary.json").unlink(missing_ok=True)
    figures = ledger_figures(records)
    everything = with_meters(count_records(records), metered)
    counts = [
        each for each in everything if (since is None or each.day >= since) and (until is None or each.day <= until)
    ]
    days = [each.day for each in counts]
    first = min(days, default=None) if since is None else since
    last = max(days, default=None) if until is None else until
    result = Costs(
        first=first,
        last=last,
        counts=counts,
        months=_months(counts, first, last, quiet_day=quiet_day, prices=prices, before=before),
        quiet_day=quiet_day,
        ledger=figures,
        prices=prices,
    )
    _write(spark, _OPERATIONS, _operation_rows(result), folder / "operations")
    _write(spark, _BILLS, _bill_rows(result), folder / "bills")
    (folder / "report.html").write_text(render(result.to_json()), encoding="utf-8")
    write_json(folder / "summary.json", result.to_json())
    _log.info("cost operations=%d days=%d", result.operations.total, sum(each.days for each in result.months))
    return result


def _quiet_day(pair_reference: str) -> Operations:
    settings = PairReference.parse(pair_reference).resolve(Redaction())
    # Never opened: it only plans.
    return NamespacePair(settings.primary, settings.secondary, settings.options).cost(period=_DAY)


def count_records(records: DataFrame) -> list[DayCount]:
    """Answer what the records of a ledger stand for, by day and run. Those that cost the same are counted as one.

    :param records: what ``read_ledger`` answers.
    """
    blocks = F.ceil(F.greatest(F.col("bytes"), F.lit(1)) / BILLED_BYTES)
    rows = (
        records.where(F.col("kind").isNotNull())
        .groupBy(
            F.floor(F.col("at") / _DAY.total_seconds()).alias("day"),
            F.coalesce("run", F.lit("")).alias("run"),
            "kind",
            "route",
            blocks.alias("blocks"),
        )
        .count()
        .collect()
    )
    counts: dict[tuple[date, str], Counter[str]] = {}
    for row in rows:
        day = datetime.fromtimestamp(row["day"] * _DAY.total_seconds(), UTC).date()
        of_day = counts.setdefault((day, row["run"]), Counter())
        for name in operations_of(row["kind"], row["route"], size_bytes=row["blocks"] * BILLED_BYTES):
            of_day[name] += row["count"]
    return [DayCount(day, run, LEDGER, Operations(**each)) for (day, run), each in sorted(counts.items())]


def _months(
    counts: Iterable[DayCount],
    first: date | None,
    last: date | None,
    *,
    quiet_day: Operations,
    prices: PriceList,
    before: int,
) -> list[MonthBill]:
    if first is None or last is None:
        return []
    days = Counter((first + number * _DAY).replace(day=1) for number in range((last - first).days + 1))
    measured = dict.fromkeys(days, Operations())
    for each in counts:
        measured[each.day.replace(day=1)] += each.operations
    return [
        MonthBill(
            month=month,
            days=number,
            measured=bill(measured[month], prices, before=before),
            quiet=bill(_times(quiet_day, number), prices, before=before),
        )
        for month, number in days.items()
    ]


def _times(operations: Operations, number: int) -> Operations:
    return Operations(**{name: number * count for name, count in asdict(operations).items()})


def _operation_rows(result: Costs) -> Iterable[Mapping[str, Any]]:
    for each in result.counts:
        for name, count in _counted(each.operations).items():
            yield {
                "day": each.day.isoformat(),
                "run": each.run,
                "source": each.source,
                "operation": name,
                "count": count,
            }


def _bill_rows(result: Costs) -> Iterable[Mapping[str, Any]]:
    for each in result.months:
        for kind, made in (("measured", each.measured), ("quiet", each.quiet)):
            yield {
                "month": f"{each.month:%Y-%m}",
                "kind": kind,
                "days": each.days,
                "operations": made.operations.total,
                "billable": made.billable,
                "amount": str(made.amount),
                "currency": made.prices.currency,
                "prices_as_of": made.prices.as_of.isoformat(),
            }


def _write(spark: SparkSession, shape: Shape, rows: Iterable[Mapping[str, Any]], path: Path) -> None:
    spark.createDataFrame(shape.table(rows)).coalesce(1).write.mode("overwrite").parquet(for_spark(path))


def _counted(operations: Operations) -> dict[str, int]:
    return {name: count for name, count in asdict(operations).items() if count}


def _billed(made: Bill) -> dict[str, Any]:
    return {"total": made.operations.total, "billable": made.billable, "amount": str(made.amount)}
