"""``ServiceBusPairCostOperator``: reports what a pair's operations cost, planned and measured."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pendulum
from airflow.sdk import Context

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.operators.base import PairOperator
from servicebus_pair.operators.counting import counted, read_counts
from servicebus_pair.operators.parameters import check_early, duration, whole_number

if TYPE_CHECKING:
    from servicebus_pair.core.costs import Operations, PriceList
    from servicebus_pair.core.ledger_costs import LedgerCount

__all__ = ["ServiceBusPairCostOperator"]

_DAY: Final = timedelta(days=1)
_MOST: Final = 10**12
_period = duration(timedelta(hours=1), 366 * _DAY)
_outage = duration(timedelta(0), 366 * _DAY)
_count = whole_number(0, _MOST)
_size = whole_number(1, 100 * 1024 * 1024)


class ServiceBusPairCostOperator(PairOperator):
    """Reports the operations of a pair, and what they cost (SPEC section 8): operations first, money second.

    *Planned* is what the backlog takes in ``period`` by itself: the polls of a continuous syphon, pings in an
    outage, and messages that take the way through the backlog. *Measured* is what a ledger and meters say
    happened. Each is billed as if it were all of a month beyond ``before``. It talks to no namespace.

    The result is ``{"period_seconds", "planned", "measured", "prices"}``: ``planned`` and ``measured`` (``None``
    without a ledger and operations) are ``{"operations": {name: n}, "total": n, "billable": n, "amount": text}``,
    ``prices`` is ``{"as_of", "currency"}``.

    :param period: what is planned and looked back at: a ``timedelta`` or seconds, an hour to 366 days (templated).
    :param messages: expected to take the way through the backlog in the period (templated).
    :param size_bytes: of each of them (templated).
    :param outage: how long one entity is expected to be failed over in the period (templated).
    :param ledger: folder of ledgers; its records of the last ``period`` are counted (templated).
    :param operations: counts of meters, as the XComs ``operations`` of send and drill tasks; a mapping, or a list
        of them (templated).
    :param before: operations of the same month by others, such as other applications of the namespace (templated).
    :param prices: ``{"as_of": day, "currency": text, "tiers": [{"beyond": n, "per_million": text}]}``, or JSON
        of it; when not given, list prices of the Standard tier, which may be out of date (templated).
    :param conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter is wrong, or there is no such ledger.
    """

    template_fields = ("period", "messages", "size_bytes", "outage", "ledger", "operations", "before", "prices")

    def __init__(
        self,
        *,
        period: timedelta | float | str = 30 * _DAY,
        messages: int | str = 0,
        size_bytes: int | str = 1024,
        outage: timedelta | float | str = timedelta(0),
        ledger: str | None = None,
        operations: Mapping[str, int] | Sequence[Mapping[str, int]] | None = None,
        before: int | str = 0,
        prices: Mapping[str, Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.period = period
        self.messages = messages
        self.size_bytes = size_bytes
        self.outage = outage
        self.ledger = ledger
        self.operations = operations
        self.before = before
        self.prices = prices
        check_early("period", period, _period)
        check_early("messages", messages, _count)
        check_early("size_bytes", size_bytes, _size)
        check_early("outage", outage, _outage)
        check_early("before", before, _count)

    async def aexecute(self, context: Context) -> dict[str, Any]:
        """Report."""
        period, prices = _period("period", self.period), self._prices()
        before = _count("before", self.before)
        planned = await self._planned(period)
        measured = await self._measured(period, until=_end(context))
        self._tell(f"planned for {period}", planned, prices, before=before)
        if measured is not None:
            self._tell(f"measured over {period}", measured, prices, before=before)
        return {
            "period_seconds": period.total_seconds(),
            "planned": _priced(planned, prices, before=before),
            "measured": None if measured is None else _priced(measured, prices, before=before),
            "prices": {"as_of": prices.as_of.isoformat(), "currency": prices.currency},
        }

    async def _planned(self, period: timedelta) -> Operations:
        messages, size_bytes = _count("messages", self.messages), _size("size_bytes", self.size_bytes)
        outage = _outage("outage", self.outage)
        if outage > period:
            raise ConfigurationError(f"outage is {outage}: it must not be longer than the period, {period}")
        pair = await self.hook.unopened_pair()
        return pair.cost(period=period, messages=messages, size_bytes=size_bytes, outage=outage)

    async def _measured(self, period: timedelta, *, until: datetime) -> Operations | None:
        metered = None if self.operations is None else read_counts("operations", self.operations)
        if self.ledger is None:
            return metered
        from servicebus_pair.core.ledger_costs import count_ledger

        found = await asyncio.to_thread(count_ledger, self.ledger, since=until - period, until=until)
        self._tell_ledger(found)
        return found.operations if metered is None else found.operations + metered

    def _prices(self) -> PriceList:
        from servicebus_pair.core.costs import STANDARD_PRICES
        from servicebus_pair.core.prices import read_prices

        given = self.prices
        if isinstance(given, str) and given.strip():
            try:
                given = json.loads(given)
            except ValueError as error:
                raise ConfigurationError(f"prices is {self.prices!r}: it must be a mapping, or JSON of one") from error
        return read_prices(given) if given else STANDARD_PRICES

    def _tell_ledger(self, found: LedgerCount) -> None:
        self.log.info("ledger: records=%d operations=%d", found.records, found.operations.total)
        if found.unreadable:
            self.log.warning("ledger: %d lines are no records and were not counted", found.unreadable)

    def _tell(self, title: str, operations: Operations, prices: PriceList, *, before: int) -> None:
        from servicebus_pair.core.costs import bill

        lines = [f"  {name.replace('_', ' '):<20}{count:>16,}" for name, count in counted(operations).items()]
        made = bill(operations, prices, before=before)
        self.log.info(
            "%s\n%s\n  %-20s%16s\n  %-20s%16s %s, prices of %s",
            *(f"operations {title}:", "\n".join(lines) or "  none", "total", f"{operations.total:,}"),
            *("cost", made.amount, prices.currency, prices.as_of),
        )


def _priced(operations: Operations, prices: PriceList, *, before: int) -> dict[str, Any]:
    from servicebus_pair.core.costs import bill

    made = bill(operations, prices, before=before)
    return {
        "operations": counted(operations),
        "total": operations.total,
        "billable": made.billable,
        "amount": str(made.amount),
    }


def _end(context: Mapping[str, Any]) -> datetime:
    """When the period ends: when this run was to be, so that a repetition reports the same; else now."""
    after = context["dag_run"].run_after
    return datetime.now(UTC) if after is None else min(pendulum.instance(after), pendulum.now("UTC"))
