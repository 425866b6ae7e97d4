r"""Bills the operations of a ledger and meters, and compares them with the cost of quiet days.

::

    spark-submit cost.py --pair env:PAIR --ledger ledger --output cost [--metered drain.json ...] \
        [--since 2026-01-01] [--until 2026-01-31] [--prices prices.json] [--before 5000000]

Connects to no namespace. Exit status 2: an argument is invalid. The prices are a JSON object as
described in ``servicebus_pair.core.pricing``. Another run replaces the output folder.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import date

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.pricing import STANDARD_PRICES, read_prices
from servicebus_pair.spark.analysis.costing import CostResult, cost
from servicebus_pair.spark.analysis.usage_reports import read_usage_report
from servicebus_pair.spark.base.redaction import task_error_message
from servicebus_pair.spark.base.report_files import read_json
from servicebus_pair.spark.jobs.command_line import SPARK_ERRORS, JobParser, add_arguments, create_session, fail


def main(arguments: Sequence[str]) -> int:
    """Run the program and return its exit status."""
    parser = JobParser(prog="cost", description="bill the operations of a ledger and meters")
    add_arguments(parser, "--pair", "--ledger", "--output")
    parser.add_argument("--metered", nargs="*", default=[], help="drain reports, which contain metered operations")
    parser.add_argument("--since", type=_day, help="first day, in UTC, such as 2026-01-01; default: of the ledger")
    parser.add_argument("--until", type=_day, help="last day; default: of the ledger")
    parser.add_argument("--prices", help="file with prices, as JSON; default: the Standard tier's")
    parser.add_argument("--before", type=int, default=0, help="operations by others in each month")
    parsed = parser.parse_args(arguments)
    try:
        prices = STANDARD_PRICES if parsed.prices is None else read_prices(read_json(parsed.prices, what="prices"))
        result = cost(
            create_session("cost"),
            pair_reference=parsed.pair,
            ledger=parsed.ledger,
            output=parsed.output,
            usage_reports=[read_usage_report(path) for path in parsed.metered],
            since=parsed.since,
            until=parsed.until,
            prices=prices,
            before=parsed.before,
        )
    except ConfigurationError as error:
        return fail("cost", error)
    except SPARK_ERRORS as error:
        return fail("cost", task_error_message(error))
    print(_summary(result))  # noqa: T201  command-line output
    return 0


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a day: allowed is a date such as 2026-01-31") from None


def _summary(result: CostResult) -> str:
    amount = sum(each.measured.amount for each in result.months)
    quiet = sum(each.quiet.amount for each in result.months)
    days = sum(each.days for each in result.months)
    return (
        f"{result.operations.total} operations in {days} days cost {amount} {result.prices.currency}; "
        f"{days} quiet days take {result.quiet_day.total * days} operations and cost {quiet}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
