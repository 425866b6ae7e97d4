r"""Bills what a ledger and meters tell of operations, against the plan of quiet days.

::

    spark-submit cost.py --pair env:PAIR --ledger ledger --output cost [--metered drain.json ...] \
        [--since 2026-01-01] [--until 2026-01-31] [--prices prices.json] [--before 5000000]

It talks to no namespace. Exit status 2 when an argument is wrong. The prices are a JSON object as
``servicebus_pair.core.prices`` reads it. The output folder is described in ``servicebus_pair.spark.costing``; run
again, the job writes it anew.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from servicebus_pair.core.costs import STANDARD_PRICES, PriceList
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.prices import read_prices
from servicebus_pair.spark.costing import Costs, cost
from servicebus_pair.spark.jobs.arguments import PLACES, session
from servicebus_pair.spark.metering import read_metered

__all__ = ["main"]


def main(arguments: Sequence[str]) -> int:
    """Run the program; answer its exit status."""
    parser = argparse.ArgumentParser(prog="cost", description="bill what a ledger and meters tell of operations")
    parser.add_argument("--pair", required=True, help=f"where the pair's settings are: {PLACES}")
    parser.add_argument("--ledger", required=True, help="folder of the ledger")
    parser.add_argument("--output", required=True, help="folder of the result")
    parser.add_argument("--metered", nargs="*", default=[], help="reports of drains, which tell of meters")
    parser.add_argument("--since", type=_day, help="first day, in UTC, such as 2026-01-01; default: of the ledger")
    parser.add_argument("--until", type=_day, help="last day; default: of the ledger")
    parser.add_argument("--prices", help="file with prices, as JSON; default: the Standard tier's")
    parser.add_argument("--before", type=int, default=0, help="operations of each month by others")
    given = parser.parse_args(arguments)
    try:
        prices = STANDARD_PRICES if given.prices is None else _prices(given.prices)
        found = cost(
            session("cost"),
            pair_reference=given.pair,
            ledger=given.ledger,
            output=given.output,
            metered=[read_metered(path) for path in given.metered],
            since=given.since,
            until=given.until,
            prices=prices,
            before=given.before,
        )
    except ConfigurationError as error:
        print(f"cost: {error}", file=sys.stderr)  # noqa: T201  a program speaks to its terminal
        return 2
    print(_sentence(found))  # noqa: T201  the same
    return 0


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no day: allowed is such as 2026-01-31") from None


def _prices(path: str) -> PriceList:
    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"prices {path!r} cannot be read as JSON: {error}") from None
    return read_prices(value)


def _sentence(found: Costs) -> str:
    amount = sum(each.measured.amount for each in found.months)
    quiet = sum(each.quiet.amount for each in found.months)
    days = sum(each.days for each in found.months)
    return (
        f"{found.operations.total} operations in {days} days cost {amount} {found.prices.currency}; "
        f"{days} quiet days take {found.quiet_day.total * days} operations and cost {quiet}"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
