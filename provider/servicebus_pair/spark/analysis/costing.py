"""``cost``: bills the operations of a ledger and meters by month, and compares them with the cost of quiet days."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  the name that Spark's own documentation uses

from servicebus_pair.core import NamespacePair, Operations, PriceList, bill
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.ledger import KINDS, operations_for_record
from servicebus_pair.core.model import get_logger
from servicebus_pair.core.pricing import BILLED_BYTES, STANDARD_PRICES, Bill
from servicebus_pair.spark.analysis.observations import count_ledger_records, read_ledger
from servicebus_pair.spark.analysis.output_folder import OutputFolder
from servicebus_pair.spark.analysis.usage_reports import LEDGER, DailyOperations, UsageReport, merge_usage
from servicebus_pair.spark.base.arrow_schema import RowSchema
from servicebus_pair.spark.base.credential_reference import PairReference
from servicebus_pair.spark.base.redaction import Redaction
from servicebus_pair.spark.report.cost_report import render
from servicebus_pair.spark.report.reconcile_result import LedgerCounts

_log = get_logger(__name__)
_VERSION: Final = 1
_DAY: Final = timedelta(days=1)
_MAX_GROUPS: Final = 1_000_000
_OPERATIONS_SCHEMA: Final = RowSchema(
    {"day": "string", "run": "string", "source": "string", "operation": "string", "count": "bigint"}
)
_BILLS_SCHEMA: Final = RowSchema(
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
    """The bill of one month, and the bill of as many quiet days.

    :param month: its first day.
    :param days: number of its days in the billed period.
    """

    month: date
    days: int
    measured: Bill
    quiet: Bill


@dataclass(frozen=True, slots=True)
class CostResult:
    """Operations and their cost, a lower bound. Each month is billed on its own.

    :param first: first UTC day of the period; ``None`` if there are no operations.
    :param last: last UTC day of the period.
    :param quiet_day: operations of a quiet day: the polls of a continuous syphon.
    """

    first: date | None
    last: date | None
    counts: Sequence[DailyOperations]
    months: Sequence[MonthBill]
    quiet_day: Operations
    ledger: LedgerCounts
    prices: PriceList

    @property
    def operations(self) -> Operations:
        """Operations of the whole period."""
        return sum((each.operations for each in self.counts), Operations())

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``summary.json``."""
        days: dict[str, int] = {}
        for each in sorted(self.counts, key=lambda count: count.day):
            days[each.day.isoformat()] = days.get(each.day.isoformat(), 0) + each.operations.total
        return {
            "version": _VERSION,
            "job": "cost",
            "first": None if self.first is None else self.first.isoformat(),
            "last": None if self.last is None else self.last.isoformat(),
            "operations": _nonzero(self.operations),
            "total": self.operations.total,
            "by_day": days,
            "quiet_day": _nonzero(self.quiet_day),
            "quiet_day_total": self.quiet_day.total,
            "months": [
                {
                    "month": f"{each.month:%Y-%m}",
                    "days": each.days,
                    "measured": _bill_json(each.measured),
                    "quiet": _bill_json(each.quiet),
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
    usage_reports: Sequence[UsageReport] = (),
    since: date | None = None,
    until: date | None = None,
    prices: PriceList = STANDARD_PRICES,
    before: int = 0,
) -> CostResult:
    """Count the operations of a period, bill them by month, and write the output folder. Idempotent.

    Connects to no namespace; only the options of the pair are used, for the cost of quiet days. The bill is a lower
    bound: operations that neither ledger nor meters know, such as the receives of consumers, are missing.

    :param ledger: folder of the ledger, or its URL, including its subfolders.
    :param output: folder, or URL of one, which driver and executors share.
    :param usage_reports: metered operations, for instance of drains; for each run and operation, the greater count of
        ledger and meters is used.
    :param since: first UTC day; default: day of the first record.
    :param until: last UTC day; default: day of the last record.
    :param before: operations by others in each month, which use up the included operations first.
    :raises ConfigurationError: an argument, the ledger or the pair's settings are invalid.
    """
    if since is not None and until is not None and since > until:
        raise ConfigurationError(f"since is {since}: it must not be after until, which is {until}")
    folder = OutputFolder(output)
    bill(Operations(), prices, before=before)  # raises for an invalid argument, before anything is deleted
    quiet_day = _quiet_day(pair_reference)
    records = read_ledger(spark, ledger)
    folder.begin()
    ledger_counts = count_ledger_records(records)
    merged = merge_usage(operations_by_day(records), usage_reports)
    counts = [each for each in merged if (since is None or each.day >= since) and (until is None or each.day <= until)]
    days = [each.day for each in counts]
    first = min(days, default=None) if since is None else since
    last = max(days, default=None) if until is None else until
    result = CostResult(
        first=first,
        last=last,
        counts=counts,
        months=_months(counts, first, last, quiet_day=quiet_day, prices=prices, before=before),
        quiet_day=quiet_day,
        ledger=ledger_counts,
        prices=prices,
    )
    folder.write_rows(spark, _OPERATIONS_SCHEMA, _operation_rows(result), "operations")
    folder.write_rows(spark, _BILLS_SCHEMA, _bill_rows(result), "bills")
    folder.finish(result.to_json(), render(result.to_json()))
    _log.info("cost operations=%d days=%d", result.operations.total, sum(each.days for each in result.months))
    return result


def _quiet_day(pair_reference: str) -> Operations:
    settings = PairReference.parse(pair_reference).resolve(Redaction())
    # The pair is never opened: cost() only calculates.
    return NamespacePair(settings.primary, settings.secondary, settings.options).cost(period=_DAY)


def operations_by_day(records: DataFrame, *, by_run: bool = True) -> list[DailyOperations]:
    """Return the operations that a ledger's records imply, by day and run.

    :param records: result of ``read_ledger``.
    :param by_run: distinguish runs; otherwise their name is empty.
    :raises ConfigurationError: there are more days and runs than the driver can hold.
    """
    further = F.greatest(F.lit(0), F.ceil(F.col("bytes") / BILLED_BYTES) - 1)
    rows = (
        records.where(F.col("kind").isin(*KINDS))
        .groupBy(
            F.floor(F.col("at") / _DAY.total_seconds()).alias("day"),
            (F.coalesce("run", F.lit("")) if by_run else F.lit("")).alias("run"),
            "kind",
            "route",
        )
        .agg(F.count("*").alias("records"), F.sum(further).alias("further"))
        .limit(_MAX_GROUPS + 1)
        .collect()
    )
    if len(rows) > _MAX_GROUPS:
        raise ConfigurationError(f"the ledger has more than {_MAX_GROUPS} days and runs: bill a part of it")
    counts: dict[tuple[date, str], Counter[str]] = {}
    for row in rows:
        day = datetime.fromtimestamp(row["day"] * _DAY.total_seconds(), UTC).date()
        of_day = counts.setdefault((day, row["run"]), Counter())
        for name, number in operations_for_record(row["kind"], row["route"], size_bytes=1).items():
            of_day[name] += number * row["records"]
        larger = operations_for_record(row["kind"], row["route"], size_bytes=BILLED_BYTES + 1)
        of_day["further_increments"] += larger.get("further_increments", 0) * row["further"]
    return [DailyOperations(day, run, LEDGER, Operations(**each)) for (day, run), each in sorted(counts.items())]


def _months(
    counts: Iterable[DailyOperations],
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
            quiet=bill(_multiply(quiet_day, number), prices, before=before),
        )
        for month, number in days.items()
    ]


def _multiply(operations: Operations, factor: int) -> Operations:
    return Operations(**{name: factor * count for name, count in asdict(operations).items()})


def _operation_rows(result: CostResult) -> Iterable[Mapping[str, Any]]:
    for each in result.counts:
        for name, count in _nonzero(each.operations).items():
            yield {
                "day": each.day.isoformat(),
                "run": each.run,
                "source": each.source,
                "operation": name,
                "count": count,
            }


def _bill_rows(result: CostResult) -> Iterable[Mapping[str, Any]]:
    for each in result.months:
        for kind, month_bill in (("measured", each.measured), ("quiet", each.quiet)):
            yield {
                "month": f"{each.month:%Y-%m}",
                "kind": kind,
                "days": each.days,
                "operations": month_bill.operations.total,
                "billable": month_bill.billable,
                "amount": str(month_bill.amount),
                "currency": month_bill.prices.currency,
                "prices_as_of": month_bill.prices.as_of.isoformat(),
            }


def _nonzero(operations: Operations) -> dict[str, int]:
    return {name: count for name, count in asdict(operations).items() if count}


def _bill_json(month_bill: Bill) -> dict[str, Any]:
    return {"total": month_bill.operations.total, "billable": month_bill.billable, "amount": str(month_bill.amount)}
